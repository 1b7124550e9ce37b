//! What an installation needs of the program: migration, health, completions, manual pages, the environment.

use std::process::{Command, Output, Stdio};

use thicket_broker::{DiscoverChoice, Node, Settings};

fn thicket(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thicket"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("THICKET_"))
    {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command.output().expect("the program runs")
}

fn out(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn complaint(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// What `thicket migrate` makes of lines of Mosquitto's.
fn migrate(lines: &str) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    let old = directory.path().join("mosquitto.conf");
    std::fs::write(&old, lines).expect("written");
    thicket(&["migrate", old.to_str().expect("text")], &[])
}

/// Our configuration for lines of Mosquitto's, which `broker --check` must find good.
fn migrated(lines: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let new = directory.path().join("thicket.toml");
    let text = out(&migrate(lines));
    std::fs::write(&new, &text).expect("written");
    let new = new.to_str().expect("text");
    let checked = thicket(
        &["broker", "--check", "--config", new, "--insecure-links"],
        &[],
    );
    let error = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{error}\n{text}");
    text
}

#[test]
fn options_of_mosquitto_become_keys() {
    let cases = [
        ("max_inflight_messages 20", "inflight_maximum = 20"),
        ("max_queued_messages 500", "queue_messages = 500"),
        ("max_keepalive 120", "keep_alive_maximum_s = 120"),
        ("max_packet_size 65536", "maximum_packet_size = 65536"),
        ("message_size_limit 1000", "maximum_packet_size = 1000"),
        (
            "message_size_limit 1000\nmax_packet_size 65536",
            "maximum_packet_size = 1000",
        ),
        (
            "allow_anonymous true\nlistener 1883\nbind_interface lo",
            "address = \"localhost:1883\"",
        ),
        (
            "allow_anonymous true\nbind_interface eth0\nport 7003",
            "address = \"localhost:7003\"",
        ),
        (
            "allow_anonymous true\nport 7003\nbind_interface eth0",
            "address = \"localhost:7003\"",
        ),
        (
            "allow_anonymous true\nport 7003\nbind_address 127.0.0.1\nbind_interface eth0",
            "address = \"127.0.0.1:7003\"",
        ),
        (
            "allow_anonymous true\nlistener 1883 127.0.0.1\nbind_interface eth0",
            "address = \"127.0.0.1:1883\"",
        ),
        ("sys_interval 30", "sys_interval_s = 30"),
        ("memory_limit 1000000000", "memory_bytes = 1000000000"),
        ("persistence true", "data = \"/var/lib/thicket\""),
        (
            "persistent_client_expiration 2w",
            "session_expiry_maximum_s = 1209600",
        ),
        (
            "persistent_client_expiration 6h",
            "session_expiry_maximum_s = 21600",
        ),
        ("log_type warning", "log_level = \"warn\""),
        ("log_type debug\nlog_type error", "log_level = \"debug\""),
        ("allow_anonymous true", "allow_anonymous = true"),
        (
            "allow_anonymous true\nlistener 1883 127.0.0.1\nmax_connections 10",
            "connections = 10",
        ),
        (
            "allow_anonymous true\nlistener 1883 ::1",
            "address = \"[::1]:1883\"",
        ),
        (
            "allow_anonymous true\nlistener 0 /tmp/thicket.sock",
            "address = \"unix:/tmp/thicket.sock\"",
        ),
        (
            "allow_anonymous true\nlistener 9001 127.0.0.1\nprotocol websockets",
            "transport = \"ws\"",
        ),
        (
            "allow_anonymous true\nlistener 1883 127.0.0.1\nmount_point tenant/",
            "topic_prefix = \"tenant/\"",
        ),
        (
            "allow_anonymous true\nport 7003\nbind_address 127.0.0.1",
            "address = \"127.0.0.1:7003\"",
        ),
        (
            "allow_anonymous true\nbind_address ::1\nport 7003",
            "address = \"[::1]:7003\"",
        ),
        (
            "allow_anonymous true\nbind_address 127.0.0.1",
            "address = \"127.0.0.1:1883\"",
        ),
    ];
    for (lines, expected) in cases {
        let text = migrated(lines);
        assert!(text.lines().any(|line| line == expected), "{lines}: {text}");
    }
}

#[test]
fn what_a_node_always_does_is_remarked_as_it_is_for_both_values() {
    for value in ["true", "false"] {
        for (option, expected) in [
            (
                "allow_zero_length_clientid",
                "a node accepts clients without an identifier",
            ),
            ("log_timestamp", "every line of the log has its time"),
            ("set_tcp_nodelay", "a node always sets TCP_NODELAY"),
        ] {
            let text = migrated(&format!("allow_anonymous true\n{option} {value}\n"));
            assert!(text.contains(expected), "{option} {value}: {text}");
        }
    }
}

#[test]
fn what_keeps_a_node_from_starting_is_an_object_in_a_log_of_objects() {
    for arguments in [
        &["broker", "--log-format", "json", "--backups", "9"][..],
        &["broker", "--log-format", "json", "--config", "/nowhere/x"],
    ] {
        let ended = thicket(arguments, &[]);
        assert_eq!(ended.status.code(), Some(1));
        let said = [ended.stdout, ended.stderr].concat();
        let said = String::from_utf8(said).expect("text");
        let lines: Vec<_> = said.lines().collect();
        assert!(
            matches!(lines[..], [line] if line.starts_with('{')
                && (line.contains("expected") || line.contains("cannot read"))),
            "{said}"
        );
    }
}

#[test]
fn a_bridge_of_mosquitto_becomes_one_of_ours() {
    let text = migrated(
        "allow_anonymous true\nlistener 1883 127.0.0.1\n\
         connection plant\naddress mosquitto.example:1884\nremote_clientid edge\nkeepalive_interval 30\n\
         bridge_protocol_version mqttv50\ntopic site/# out 2 \"\" edge-1/\ntopic orders/# in 1\n",
    );
    for line in [
        "name = \"plant\"",
        "address = \"mosquitto.example:1884\"",
        "client_id = \"edge\"",
        "keep_alive_s = 30",
        "version = \"5.0\"",
        "topic = \"site/#\"",
        "remote_prefix = \"edge-1/\"",
        "direction = \"in\"",
        "qos = 2",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
    assert_eq!(text.matches("[[bridge.rule]]").count(), 2, "{text}");
}

#[test]
fn a_bridge_without_a_user_has_a_remark_where_clients_need_one() {
    let bridge = "connection plant\naddress b.example\ntopic a/# out\n";
    let closed = "listener 1883 127.0.0.1\nallow_anonymous false\npassword_file /nowhere/users\n";
    let remark = "which refuses clients without a user name: set `local_user`";
    let text = out(&migrate(&format!("{closed}{bridge}")));
    assert!(text.contains(remark), "{text}");
    for lines in [
        format!("{closed}{bridge}local_username ann\n"),
        format!("allow_anonymous true\nlistener 1883 127.0.0.1\n{bridge}"),
    ] {
        let text = out(&migrate(&lines));
        assert!(!text.contains(remark), "{text}");
    }
}

#[test]
fn a_bridge_has_the_version_and_the_longest_wait_that_it_had() {
    let bridge = "allow_anonymous true\nlistener 1883 127.0.0.1\nconnection plant\naddress b.example\ntopic a/# out\n";
    for (lines, expected) in [
        ("", "version = \"3.1.1\""),
        ("bridge_protocol_version mqttv50\n", "version = \"5.0\""),
        ("restart_timeout 7\n", "reconnect_maximum_s = 7"),
        ("restart_timeout 5 60\n", "reconnect_maximum_s = 60"),
    ] {
        let text = migrated(&format!("{bridge}{lines}"));
        assert!(text.lines().any(|line| line == expected), "{lines}: {text}");
        assert!(!text.contains("# line"), "{lines}: {text}");
    }
}

#[test]
fn the_prefix_of_a_listener_is_applied_once_to_the_topics_of_a_bridge() {
    let listener = "allow_anonymous true\nlistener 1883 127.0.0.1\nmount_point plant/\n";
    let bridge = "connection cloud\naddress b.example\n";
    for (rule, expected) in [
        (
            "topic # out 1 plant/ edge/",
            &["topic = \"#\"", "remote_prefix = \"edge/\""][..],
        ),
        (
            "topic site/# in 1 plant/a/ edge/",
            &["topic = \"site/#\"", "local_prefix = \"a/\""],
        ),
        (
            "topic plant/# out 1 \"\" edge/",
            &["topic = \"#\"", "remote_prefix = \"edge/plant/\""],
        ),
    ] {
        let text = migrated(&format!("{listener}{bridge}{rule}\n"));
        for line in expected {
            assert!(text.lines().any(|it| it == *line), "{line}: {text}");
        }
        assert!(!text.contains("local_prefix = \"plant/"), "{text}");
        assert!(!text.contains("# line"), "{text}");
    }
    // Other topics cannot be reached through this listener.
    let text = migrated(&format!("{listener}{bridge}topic other/# out 1\n"));
    assert!(
        text.contains("# line 4: connection cloud\n") && text.contains("without topic_prefix"),
        "{text}"
    );
    // Through another one they can, as there.
    let text = migrated(&format!(
        "{listener}listener 1884 127.0.0.1\n{bridge}topic # out 1 plant/ edge/\n"
    ));
    assert!(text.contains("local_prefix = \"plant/\""), "{text}");
}

#[test]
fn names_in_certificates_are_taken_over_for_their_listener() {
    // The files are not there, so the configurations are not checked.
    let secure = "listener 8883 127.0.0.1\ncertfile /c\nkeyfile /k\ncafile /a\nrequire_certificate true\nuse_identity_as_username true\n";
    let plain = "listener 1883 127.0.0.1\n";
    for lines in [
        secure.to_owned(),
        format!("allow_anonymous true\n{secure}{plain}"),
        format!("per_listener_settings true\n{plain}allow_anonymous true\n{secure}"),
        format!("{secure}{}", secure.replace("use_", "# use_")),
    ] {
        let text = out(&migrate(&lines));
        let at_node = text.split("[[listener]]").next().unwrap_or_default();
        assert!(!at_node.contains("certificate_users"), "{lines}: {text}");
        let tables = text.split("[[listener]]").skip(1);
        let taken: Vec<&str> = tables
            .filter(|table| table.contains("certificate_users = true\n"))
            .collect();
        assert_eq!(taken.len(), 1, "{lines}: {text}");
        let is_secure = taken[0].contains("tls_client_certificate = \"required\"");
        assert!(is_secure, "{lines}: {text}");
    }
    let text = out(&migrate(&format!(
        "allow_anonymous true\n{plain}use_identity_as_username true\n"
    )));
    assert!(text.contains("it has no effect"), "{text}");
    assert!(!text.contains("certificate_users"), "{text}");
}

#[test]
fn remarks_have_no_passwords() {
    for option in [
        "remote_password",
        "local_password",
        "auth_opt_pg_password",
        "bridge_psk",
    ] {
        let text = out(&migrate(&format!("connection plant\n{option} hush\n")));
        assert!(
            text.contains(&format!("# line 2: {option} ...\n")),
            "{text}"
        );
        assert!(!text.contains("hush"), "{text}");
    }
}

#[test]
fn a_bridge_of_mosquitto_over_tls_stays_one() {
    // The files are not there, so the configuration is not checked.
    let text = out(&migrate(
        "allow_anonymous true\nlistener 1883 127.0.0.1\n\
         connection plant\naddress mosquitto.example:8883\nbridge_cafile /ca\nbridge_certfile /c\nbridge_keyfile /k\n\
         topic site/# out\n",
    ));
    for line in [
        "address = \"tls://mosquitto.example:8883\"",
        "tls_ca = \"/ca\"",
        "tls_certificate = \"/c\"",
        "tls_key = \"/k\"",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
}

#[test]
fn a_node_refuses_the_strangers_that_mosquitto_refuses() {
    let certificates = "certfile /c\nkeyfile /k\ncafile /a\nrequire_certificate true";
    for (lines, count) in [
        ("listener 1883 127.0.0.1", 1),
        ("port 1883\nbind_address 127.0.0.1", 1),
        // A listener that requires certificates would let in clients without a name otherwise.
        (&*format!("listener 8883 127.0.0.1\n{certificates}"), 2),
        (
            &*format!("allow_anonymous false\nlistener 8883 127.0.0.1\n{certificates}"),
            2,
        ),
        // What stands before the listeners is not theirs.
        (
            "per_listener_settings true\nallow_anonymous true\nlistener 1883 127.0.0.1\nlistener 1884 127.0.0.1",
            2,
        ),
    ] {
        let text = out(&migrate(lines));
        let found = text
            .lines()
            .filter(|line| *line == "allow_anonymous = false");
        assert_eq!(found.count(), count, "{lines}: {text}");
    }
    for lines in [
        "max_keepalive 120",
        "allow_anonymous true\nlistener 1883 127.0.0.1",
    ] {
        let text = out(&migrate(lines));
        assert!(!text.contains("= false"), "{lines}: {text}");
    }
}

#[test]
fn rights_of_one_listener_are_taken_over_only_if_they_stay_as_narrow() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("acl");
    std::fs::write(&file, "topic read a/#\n").expect("written");
    let path = file.to_str().expect("text");
    let first = format!(
        "per_listener_settings true\nlistener 1883 127.0.0.1\nallow_anonymous true\nacl_file {path}\n"
    );
    let same = format!("{first}listener 1884 127.0.0.1\nallow_anonymous true\nacl_file {path}\n");
    for lines in [&first, &same] {
        let text = migrated(lines);
        assert!(text.contains(&format!("acl = \"{path}\"")), "{text}");
    }
    let more = "listener 1884 127.0.0.1\nallow_anonymous true\n";
    let other = format!("{more}acl_file /etc/other\n");
    for (others, line) in [
        (more, "line 5: listener 1884 127.0.0.1"),
        (&*other, "line 7: acl_file /etc/other"),
    ] {
        let text = migrated(&format!("{first}{others}"));
        let remark = format!("# {line}\n#   the listener 127.0.0.1:1884 is left out");
        assert!(text.contains(&remark), "{text}");
        assert!(text.contains(&format!("acl = \"{path}\"")), "{text}");
        assert!(text.contains("address = \"127.0.0.1:1883\""), "{text}");
        assert!(!text.contains("address = \"127.0.0.1:1884\""), "{text}");
    }
    // Most listeners have no rights: they stay as they are, and the one with rights is left out.
    let text = migrated(&format!(
        "{first}{more}listener 1885 127.0.0.1\nallow_anonymous true\nmax_keepalive 120\n"
    ));
    assert!(
        text.contains("#   the listener 127.0.0.1:1883 is left out: it has rights of its own"),
        "{text}"
    );
    assert!(
        !text.contains("acl = ") && text.contains("keep_alive_maximum_s = 120"),
        "{text}"
    );
    assert_eq!(text.matches("[[listener]]").count(), 2, "{text}");
}

#[test]
fn a_directory_is_followed_and_each_of_its_files_has_listeners_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, lines: &str| {
        std::fs::write(directory.path().join(name), lines).expect("written");
    };
    let here = directory.path().to_str().expect("text");
    // In this order: of a letter the upper case first.
    write("B.conf", "max_queued_messages 2\n");
    write("b.conf", "max_queued_messages 3\n");
    write(
        "a.conf",
        "max_queued_messages 1\nlistener 1884 127.0.0.1\nallow_anonymous true\n",
    );
    // Before a listener of its own: it is about the default one.
    write(
        "c.conf",
        "allow_anonymous false\nbridge_protocol_version mqttv50\n",
    );
    write("d.conf", &format!("include_dir {here}\n"));
    write("e.conf.old", "max_queued_messages 9\n");
    let text = out(&migrate(&format!(
        "per_listener_settings true\nport 1883\nlistener 1885 127.0.0.1\nconnection x\naddress y\ntopic a out\ninclude_dir {here}\n\
         mount_point own/\nkeepalive_interval 7\n"
    )));
    let tables: Vec<&str> = text.split("[[listener]]").skip(1).collect();
    assert_eq!(tables.len(), 3, "{text}");
    for (number, expected) in [
        (0, "allow_anonymous = false"),
        (1, "topic_prefix = \"own/\""),
        (2, "allow_anonymous = true"),
    ] {
        assert!(tables[number].contains(expected), "{number}: {text}");
    }
    assert!(text.contains("queue_messages = 3\n"), "{text}");
    // The bridge of the first file goes on behind the directory, and not in it.
    assert!(text.contains("keep_alive_s = 7\n"), "{text}");
    assert!(text.contains("version = \"3.1.1\"\n"), "{text}");
    for expected in [
        format!("# {here}/c.conf, line 2: bridge_protocol_version mqttv50\n#   no `connection`"),
        format!("# {here}/d.conf, line 1: include_dir {here}\n#   Mosquitto follows it only"),
    ] {
        assert!(text.contains(&expected), "{expected}: {text}");
    }
    let text = migrated("include_dir /nowhere/at/all\n");
    let expected = "# line 1: include_dir /nowhere/at/all\n#   cannot read /nowhere/at/all";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn remarks_are_sorted_by_what_must_be_done_first() {
    let migrated = migrate("pid_file /x\nqueue_qos0_messages true\npsk_hint a\nmax_keepalive 60\n");
    let text = out(&migrated);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    let order = [
        "# Do this first:",
        "# line 3: psk_hint a",
        "# A node does this otherwise:",
        "# max_packet_size is not set",
        "# line 2: queue_qos0_messages true",
        "# Nothing to do:",
        "# line 1: pid_file /x",
        "# line 4: max_keepalive 60\n#   holds for clients of MQTT 5.0 only",
    ];
    assert!(order.map(at).is_sorted(), "{text}");
    let said = String::from_utf8_lossy(&migrated.stderr);
    let expected =
        "5 remarks: 1 to do first, 2 on what a node does otherwise, 2 without anything to do";
    assert!(said.contains(expected), "{said}");
    // With a limit there is nothing to say about one.
    let text = migrated_text("max_packet_size 100000\n");
    assert!(!text.contains("max_packet_size is not set"), "{text}");
}

fn migrated_text(lines: &str) -> String {
    out(&migrate(lines))
}

#[test]
fn a_node_that_no_other_node_can_reach_is_warned_of() {
    let directory = tempfile::tempdir().expect("a directory");
    let new = directory.path().join("thicket.toml");
    let warning = "other nodes cannot";
    let secret = directory.path().join("secret");
    std::fs::write(
        &secret,
        "4b8f1c0de2a95f3b7d6c8e9fa1b2c3d4e5f60718293a4b5c6d7e8f9011223344",
    )
    .expect("written");
    let secret = format!(
        "cluster_secret_file = {:?}\n",
        secret.to_str().expect("text")
    );
    let plain = "listen = [\"127.0.0.1:1883\", \"ws://0.0.0.0:8083\"";
    for (config, is_warned) in [
        (format!("{secret}{plain}]\n"), true),
        (format!("{secret}{plain}]\ndiscover = \"off\"\n"), false),
        (
            format!("{secret}{plain}]\ndiscover = \"off\"\nseed = [\"node-2:1883\"]\n"),
            true,
        ),
        (
            format!("{secret}{plain}]\nadvertise = \"node-1:1883\"\n"),
            false,
        ),
        (
            format!("{secret}{plain}, \"link://0.0.0.0:1884\"]\n"),
            false,
        ),
        (
            format!("{secret}{plain}, \"link://127.0.0.1:1884\"]\n"),
            true,
        ),
        (format!("{secret}listen = [\"0.0.0.0:1883\"]\n"), false),
        (String::new(), false),
    ] {
        let config = format!("allow_anonymous = true\n{config}");
        std::fs::write(&new, &config).expect("written");
        let path = new.to_str().expect("text");
        let said = out(&thicket(&["broker", "--check", "--config", path], &[]));
        assert_eq!(said.contains(warning), is_warned, "{config}{said}");
    }
    // What Mosquitto's configuration becomes says what to add.
    let lines = "allow_anonymous true\nlistener 1883 127.0.0.1\nlistener 1884 0.0.0.0\nprotocol websockets\n";
    let text = migrated(lines);
    let expected = "# [[listener]]\n# address = \"link://0.0.0.0:1885\"\n";
    assert!(text.contains(expected), "{text}");
    for lines in [
        "allow_anonymous true\nlistener 1883 127.0.0.1\n",
        "allow_anonymous true\nlistener 1883 0.0.0.0\nlistener 1884 0.0.0.0\nprotocol websockets\n",
    ] {
        assert!(!migrated(lines).contains("link://"), "{lines}");
    }
}

#[test]
fn options_with_an_answer_of_another_kind_say_which() {
    for (lines, why) in [
        (
            "message_size_limit 1000",
            "bounds a whole packet, with topic and properties",
        ),
        ("message_size_limit 0", "maximum_packet_size is 1 MiB"),
        ("retain_expiry_interval 10", "Message Expiry Interval"),
        (
            "allow_anonymous true\nlistener 1883\nbind_interface eth0",
            "it is on localhost until you write the address of eth0 there",
        ),
        (
            "allow_anonymous true\nlistener 1883 127.0.0.1\nbind_interface eth0",
            "its address is kept",
        ),
    ] {
        let text = migrated(lines);
        assert!(text.contains(why), "{lines}: {text}");
    }
}

#[test]
fn a_bridge_without_topics_or_address_is_left_out_with_a_remark() {
    for (lines, why) in [
        ("address b.example:1883", "no `topic` follows it"),
        ("topic a/# out", "no `address` follows it"),
    ] {
        let text = migrated(&format!("connection plant\n{lines}\n"));
        assert!(
            text.contains(&format!("# line 1: connection plant\n#   {why}")),
            "{text}"
        );
        assert!(!text.contains("[[bridge]]"), "{text}");
    }
}

#[test]
fn every_line_that_is_not_taken_over_has_a_remark() {
    let lines = [
        "plugin /usr/lib/mosquitto_dynamic_security.so",
        "max_queued_messages 0",
        "pid_file /run/mosquitto.pid",
        "psk_hint somebody",
        "nothing_we_know 3",
        "max_keepalive often",
        "topic site/# out",
    ];
    let text = migrated(&format!("# a comment\n\n{}\n", lines.join("\n")));
    for (number, line) in lines.iter().enumerate() {
        let remark = format!("# line {}: {line}\n#   ", number + 3);
        assert!(text.contains(&remark), "{line}: {text}");
    }
    let settings = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    assert_eq!(settings.count(), 0, "{text}");
}

#[test]
fn users_are_taken_over_if_their_hashes_can_be_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("passwords");
    let path = file.to_str().expect("text");
    std::fs::write(&file, "old:$6$abc$def\n").expect("written");
    let text = migrated(&format!("password_file {path}\n"));
    assert!(
        text.contains("1 of its users have hashes of another kind"),
        "{text}"
    );
    std::fs::write(
        &file,
        format!(
            "new:{}\n",
            thicket_broker::hash_password(b"secret").expect("hashed")
        ),
    )
    .expect("written");
    let text = migrated(&format!("password_file {path}\n"));
    assert!(text.contains(&format!("users = \"{path}\"")), "{text}");
}

#[test]
fn health_ends_with_what_the_node_says() {
    let settings = Settings {
        listen: Some(vec!["127.0.0.1:0".into()]),
        http: Some("127.0.0.1:0".into()),
        discover: Some(vec![DiscoverChoice::Off]),
        ..Settings::default()
    };
    let node = Node::start(settings.check().expect("good settings")).expect("a free port");
    let api = node.http_address().expect("it has one").to_string();
    assert_eq!(
        out(&thicket(&["health", "--live", "--api", &api], &[])),
        "live\n"
    );
    // A node without others is ready when it has looked for them.
    while !thicket(&["health"], &[("THICKET_API", &api)])
        .status
        .success()
    {}
    node.stop();
    let error = complaint(&thicket(&["health", "--api", &api], &[]));
    assert!(error.contains("nobody listens"), "{error}");
}

#[test]
fn a_variable_that_is_no_key_is_refused() {
    let error = complaint(&thicket(
        &["broker", "--check"],
        &[("THICKET_LISTENS", "localhost:1883")],
    ));
    let expected = "unknown environment variable THICKET_LISTENS; did you mean THICKET_LISTEN?";
    assert!(error.contains(expected), "{error}");
    let of_kubernetes = [
        ("THICKET_SERVICE_HOST", "10.0.0.1"),
        ("THICKET_PORT", "tcp://10.0.0.1:1883"),
    ];
    out(&thicket(&["broker", "--check"], &of_kubernetes));
}

#[test]
fn a_bad_value_names_its_variable_and_a_flag_does_not() {
    // The first is refused when words are read, the second when values are looked at.
    for (name, flag, value) in [
        ("THICKET_WORKERS", "--workers", "two"),
        ("THICKET_LISTEN", "--listen", "nowhere"),
    ] {
        let error = complaint(&thicket(&["broker", "--check"], &[(name, value)]));
        assert!(
            error.contains(&format!("environment variable {name}")),
            "{error}"
        );
        let error = complaint(&thicket(&["broker", "--check", flag, value], &[]));
        assert!(
            error.contains(value) && !error.contains("THICKET_"),
            "{error}"
        );
    }
}

#[test]
fn the_faults_of_flags_and_of_files_are_found_at_once() {
    let output = thicket(
        &[
            "broker",
            "--check",
            "--queue-bytes",
            "64MX",
            "--sync=sometimes",
            "--users",
            "/nowhere/users",
            "--listen",
            "tls://127.0.0.1:0",
            "--tls-certificate",
            "/nowhere/pem",
        ],
        &[],
    );
    assert_eq!(output.status.code(), Some(1));
    let error = complaint(&output);
    for expected in [
        "--queue-bytes 64MX: expected a size",
        "--sync sometimes: expected one of commit, interval, none",
        "users: cannot read /nowhere/users",
        "a `tls_key` for this listener",
        "cannot read a certificate from /nowhere/pem",
    ] {
        assert!(error.contains(expected), "`{expected}` in {error}");
    }
    assert_eq!(error.lines().count(), 5, "{error}");
}

#[test]
fn every_command_has_a_manual_page_and_shells_have_completions() {
    let directory = tempfile::tempdir().expect("a directory");
    let pages = directory.path().join("man");
    out(&thicket(&["man", pages.to_str().expect("text")], &[]));
    for (page, word) in [
        ("thicket.1", "thicket\\-broker(1)"),
        ("thicket-broker.1", "\\-\\-listen"),
        ("thicket-ctl-drain.1", "timeout"),
    ] {
        let text = std::fs::read_to_string(pages.join(page)).expect(page);
        assert!(text.contains(word), "{page}: {text}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let text = out(&thicket(&["completions", shell], &[]));
        assert!(text.contains("drain"), "{shell}");
    }
}

#[test]
fn a_node_alone_does_not_wait_for_others_when_it_is_drained() {
    let settings = Settings {
        listen: Some(vec!["127.0.0.1:0".into()]),
        http: Some("127.0.0.1:0".into()),
        discover: Some(vec![DiscoverChoice::Off]),
        ..Settings::default()
    };
    let node = Node::start(settings.check().expect("good settings")).expect("a free port");
    let api = node.http_address().expect("it has one").to_string();
    let port = node.addresses()[0].port().to_string();
    let session = [
        "sub", "-p", &port, "-c", "-i", "kept", "-q", "1", "-t", "a", "-W", "1",
    ];
    out(&thicket(&session, &[]));
    let drain = ["ctl", "--api", &api, "drain", "--timeout", "100000"];
    let error = complaint(&thicket(&drain, &[]));
    assert!(error.contains("the last node that serves"), "{error}");
    let forced = [&drain[..], &["--force"]].concat();
    let error = complaint(&thicket(&forced, &[]));
    assert!(error.contains("1 session stays here"), "{error}");
    node.stop();
}
