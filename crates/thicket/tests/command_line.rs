//! The program as users call it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use thicket_broker::{DiscoverChoice, Node, Settings};

/// Longer than anything takes on a loaded machine; reached only when a test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

fn thicket(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thicket"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("THICKET_"))
    {
        command.env_remove(name);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    thicket(arguments).output().expect("the program runs")
}

fn run_with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = thicket(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input)
        .expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn out(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// What the program says when it fails.
fn complaint(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn node() -> Node {
    let settings = Settings {
        listen: Some(vec!["127.0.0.1:0".into()]),
        http: Some("127.0.0.1:0".into()),
        discover: Some(vec![DiscoverChoice::Off]),
        ..Settings::default()
    };
    Node::start(settings.check().expect("good settings")).expect("a free port")
}

fn port(node: &Node) -> String {
    node.addresses()[0].port().to_string()
}

/// A port nobody listens on, with `count` free ones from there.
fn free_ports(count: u16) -> u16 {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    for _ in 0..100 {
        let first = free(0)
            .and_then(|socket| socket.local_addr())
            .expect("a free port")
            .port();
        if (1..count).all(|n| first.checked_add(n).is_some_and(|port| free(port).is_ok())) {
            return first;
        }
    }
    panic!("no {count} free ports in a row");
}

/// A subscriber in the background, once the node knows its subscription.
fn subscriber(node: &Node, arguments: &[&str]) -> Child {
    let api = node.http_address().expect("the API is on").to_string();
    let count = || {
        run(&["ctl", "--api", &api, "subscriptions", "--json"])
            .stdout
            .len()
    };
    let before = count();
    let child = thicket(arguments)
        .args(["-W", "60"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.expect("the program runs");
    wait_until("a subscription", || count() > before);
    child
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn pub_and_sub_pass_messages_of_every_qos_in_every_version() {
    let node = node();
    let port = port(&node);
    for version in ["3.1", "3.1.1", "5"] {
        for qos in ["0", "1", "2"] {
            let arguments = [
                "sub", "-p", &port, "-V", version, "-q", qos, "-t", "a/+", "-v", "-C", "2",
            ];
            let subscriber = subscriber(&node, &arguments);
            let publish = ["pub", "-p", &port, "-V", version, "-q", qos, "-t"];
            out(&run(&[&publish[..], &["a/1", "-m", "hello"]].concat()));
            out(&run_with_input(
                &[&publish[..], &["a/2", "-s"]].concat(),
                b"two\nlines",
            ));
            let printed = out(&subscriber.wait_with_output().expect("it ends"));
            assert_eq!(
                printed, "a/1 hello\na/2 two\nlines\n",
                "version {version}, QoS {qos}"
            );
        }
    }
}

#[test]
fn every_line_of_standard_input_becomes_a_message() {
    let node = node();
    let port = port(&node);
    let lines: String = (0..5000).map(|n| format!("{n}\n")).collect();
    for qos in ["0", "1", "2"] {
        let arguments = ["sub", "-p", &port, "-q", qos, "-t", "lines", "-C", "5000"];
        let subscriber = subscriber(&node, &arguments);
        let arguments = ["pub", "-p", &port, "-q", qos, "-t", "lines", "-l"];
        out(&run_with_input(&arguments, lines.as_bytes()));
        let printed = out(&subscriber.wait_with_output().expect("it ends"));
        assert!(printed == lines, "QoS {qos}");
    }
}

#[test]
fn a_retained_message_is_set_and_removed() {
    let node = node();
    let port = port(&node);
    let sub = ["sub", "-p", &port, "-t", "state", "-C", "1", "-W", "1"];
    out(&run(&[
        "pub", "-p", &port, "-t", "state", "-m", "on", "-r", "-q", "1",
    ]));
    assert_eq!(out(&run(&sub)), "on\n");
    out(&run(&[
        "pub", "-p", &port, "-t", "state", "-n", "-r", "-q", "1",
    ]));
    assert!(complaint(&run(&sub)).contains("0 of 1 message came in time"));
}

#[test]
fn a_kept_session_gets_what_was_not_printed() {
    let node = node();
    let port = port(&node);
    let sub = [
        "sub", "-p", &port, "-i", "kept", "-c", "-q", "1", "-t", "news", "-C", "1",
    ];
    let first = subscriber(&node, &sub);
    out(&run_with_input(
        &["pub", "-p", &port, "-q", "1", "-t", "news", "-l"],
        b"1\n2\n3\n",
    ));
    assert_eq!(out(&first.wait_with_output().expect("it ends")), "1\n");
    for expected in ["2\n", "3\n"] {
        let bounded = [&sub[..], &["-W", "60"]].concat();
        assert_eq!(out(&run(&bounded)), expected);
    }
}

#[test]
fn failures_are_told_in_words() {
    let port = free_ports(1).to_string();
    let api = format!("127.0.0.1:{port}");
    let cases: [(&[&str], &str); 9] = [
        (
            &["pub", "-p", &port, "-t", "a", "-m", "b"],
            "nobody listens on localhost",
        ),
        (&["sub", "-p", &port, "-t", "a"], "connection refused"),
        (
            &["sub", "-h", "no-such-host.invalid", "-t", "a"],
            "cannot find the host no-such-host.invalid",
        ),
        (&["ctl", "--api", &api, "nodes"], "is the node running"),
        (&["pub", "-t", "a"], "--message"),
        (
            &["broker", "--workers", "0"],
            "workers = 0: expected 1 to 128",
        ),
        (&["broker", "--listen", "0.0.0.0:0"], "--allow-anonymous"),
        (
            &["broker", "--http", "0.0.0.0:0"],
            "must not be reached from other machines",
        ),
        (
            &["broker", "--config", "/no/such/file"],
            "cannot read /no/such/file",
        ),
    ];
    for (arguments, expected) in cases {
        let words = complaint(&run(arguments));
        assert!(words.contains(expected), "{arguments:?}: {words}");
    }
}

#[test]
fn a_filter_or_topic_that_is_none_is_refused_in_words() {
    let node = node();
    let port = port(&node);
    for arguments in [
        ["sub", "-p", &port, "-t", "a/#/b"],
        ["sub", "-p", &port, "-t", "$share//a"],
    ] {
        let words = complaint(&run(&arguments));
        assert!(words.starts_with("thicket: "), "{arguments:?}: {words}");
    }
    let words = complaint(&run(&["pub", "-p", &port, "-t", "a/+", "-m", "x"]));
    assert!(words.contains("--topic a/+: "), "{words}");
}

#[test]
fn ctl_shows_tables_and_json() {
    let node = node();
    let api = node.http_address().expect("the API is on").to_string();
    let port = port(&node);
    let mut subscriber = subscriber(
        &node,
        &["sub", "-p", &port, "-i", "shown", "-t", "a/#", "-q", "2"],
    );
    let ctl = |arguments: &[&str]| out(&run(&[&["ctl", "--api", &api], arguments].concat()));
    assert!(ctl(&["nodes"]).contains(node.name()));
    assert!(
        ctl(&["sessions"])
            .lines()
            .any(|line| line.starts_with("shown") && line.contains("connected"))
    );
    assert!(
        ctl(&["subscriptions"])
            .lines()
            .any(|line| line.starts_with("shown") && line.contains("a/#"))
    );
    assert!(ctl(&["traffic"]).starts_with("TRAFFIC"));
    let json: serde_json::Value =
        serde_json::from_str(&ctl(&["sessions", "--json"])).expect("JSON");
    assert_eq!(json[0]["client_id"], "shown");
    subscriber.kill().expect("it runs");
    subscriber.wait().expect("it ends");
}

#[test]
fn a_password_that_was_hashed_lets_its_user_in() {
    let line = out(&run_with_input(&["passwd", "ann"], b"secret\n"));
    let path = std::env::temp_dir().join(format!("thicket-users-{}", std::process::id()));
    std::fs::write(&path, line).expect("writable");
    let port = free_ports(1).to_string();
    let listen = format!("127.0.0.1:{port}");
    let users = path.to_str().expect("text");
    let mut broker = Background::start(&[
        "broker",
        "--listen",
        &listen,
        "--http",
        "off",
        "--discover",
        "off",
        "--users",
        users,
    ]);
    broker.wait_for(&listen);
    let publish = ["pub", "-p", &port, "-t", "a", "-m", "b"];
    out(&run(
        &[&publish[..], &["-u", "ann", "-P", "secret"]].concat()
    ));
    let words = complaint(&run(&[&publish[..], &["-u", "ann", "-P", "wrong"]].concat()));
    assert!(
        words.contains("bad user name or password (0x86)"),
        "{words}"
    );
    let words = complaint(&run(&[&publish[..], &["-V", "3.1.1"]].concat()));
    assert!(words.contains("not authorized (0x87)"), "{words}");
    assert!(broker.end());
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let path = std::env::temp_dir().join(format!("thicket-config-{}.toml", std::process::id()));
    let (from_file, from_environment, from_flag) = (free_ports(1), free_ports(1), free_ports(1));
    let address = |port: u16| format!("127.0.0.1:{port}");
    let file = format!(
        "listen = ['{}']\nhttp = 'off'\ndiscover = ['off']\nname = 'file'\n",
        address(from_file)
    );
    std::fs::write(&path, file).expect("writable");
    let config = path.to_str().expect("text");
    let flag = address(from_flag);
    for (environment, flag, expected) in [
        (None, None, from_file),
        (Some(address(from_environment)), None, from_environment),
        (
            Some(address(from_environment)),
            Some(flag.as_str()),
            from_flag,
        ),
    ] {
        let mut command = thicket(&["broker", "--config", config]);
        if let Some(environment) = environment {
            command.env("THICKET_LISTEN", environment);
        }
        command.args(flag.map(|flag| ["--listen", flag]).into_iter().flatten());
        let mut broker = Background::spawn(command);
        broker.wait_for(&address(expected));
        assert!(broker.end());
    }
}

#[test]
fn up_starts_nodes_that_found_each_other_and_takes_them_along() {
    let first = free_ports(6);
    let (mqtt, http) = (first.to_string(), (first + 3).to_string());
    let cluster = format!("up-{first}");
    let mut up = Background::start(&[
        "up",
        "--port",
        &mqtt,
        "--http-port",
        &http,
        "--cluster-name",
        &cluster,
        "--workers",
        "1",
    ]);
    let screen = up.read_until("Ctrl-C stops all.");
    assert_eq!(
        screen
            .lines()
            .filter(|line| line.ends_with("3 nodes"))
            .count(),
        3,
        "{screen}"
    );
    assert!(
        screen.contains(&format!("mosquitto_pub -p {mqtt} -t site/1/temp -m 21")),
        "{screen}"
    );
    let program = env!("CARGO_BIN_EXE_thicket");
    assert!(
        screen.contains(&format!("{program} sub -p {}", first + 2)),
        "it can be pasted: {screen}"
    );
    let (one, other) = ((first + 2).to_string(), mqtt.clone());
    out(&run(&[
        "pub",
        "-p",
        &other,
        "-t",
        "site/1/temp",
        "-m",
        "21",
        "-r",
        "-q",
        "1",
    ]));
    assert_eq!(
        out(&run(&["sub", "-p", &one, "-t", "site/+/temp", "-C", "1"])),
        "21\n"
    );
    let words = complaint(&run(&["up", "--port", &mqtt, "--http-port", "1"]));
    assert!(
        words.contains(&format!("port {mqtt} for node-1 is in use")),
        "{words}"
    );
    assert!(up.end());
    let address = |n: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, first + n));
    wait_until("the nodes to end", || {
        (0..6).all(|n| TcpStream::connect(address(n)).is_err())
    });
}

#[test]
fn up_passes_flags_and_variables_on_to_each_node() {
    let first = free_ports(6);
    let port = |n: u16| (first + n).to_string();
    let mut command = thicket(&["up", "--nodes", "2", "--workers", "1"]);
    command
        .args(["--port", &port(0), "--http-port", &port(2)])
        .args(["--placement-port", &port(4)])
        .args(["--cluster-name", &format!("up-{first}")])
        .args(["--", "--redirect-policy", "messages", "--backups", "0"])
        .env("THICKET_REDIRECT", "topics")
        .env("THICKET_DATA", "/nowhere");
    let mut up = Background::spawn(command);
    up.read_until("Ctrl-C stops all.");
    for node in 0..2 {
        let api = format!("127.0.0.1:{}", port(2 + node));
        let text = out(&run(&["ctl", "--api", &api, "explain", "client", "nobody"]));
        assert!(text.contains("by policy messages"), "{text}");
        let placements = SocketAddr::from((Ipv4Addr::LOCALHOST, first + 4 + node));
        TcpStream::connect(placements).expect("the listener for placements");
    }
    assert!(up.end());
    let refused = complaint(&run(&["up", "--", "--listen", "127.0.0.1:1"]));
    assert!(refused.contains("--listen: use --port"), "{refused}");
}

#[test]
fn up_uses_credentials_where_the_apis_of_its_nodes_have_users() {
    let first = free_ports(4);
    let port = |n: u16| (first + n).to_string();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let users = directory.path().join("http-users");
    let line = run_with_input(&["passwd", "--role", "viewer", "eye"], b"look\n");
    std::fs::write(&users, line.stdout).expect("the temporary directory is writable");
    let cluster = format!("up-{first}");
    let up = |more: &[&str]| {
        let mut command = thicket(&["up", "--nodes", "2", "--workers", "1"]);
        command
            .args(["--port", &port(0), "--http-port", &port(2)])
            .args(["--cluster-name", &cluster])
            .args(more)
            .args(["--", "--http-users"])
            .arg(&users);
        command
    };
    let words = complaint(&up(&[]).output().expect("the program runs"));
    assert!(
        words.contains("answers 401") && words.contains("--api-user"),
        "{words}"
    );
    let mut running = Background::spawn(up(&["--api-user", "eye:look"]));
    running.read_until("Ctrl-C stops all.");
    assert!(running.end());
}

/// A process that runs until it is told to end.
struct Background(Child);

impl Background {
    fn start(arguments: &[&str]) -> Self {
        Self::spawn(thicket(arguments))
    }

    fn spawn(mut command: Command) -> Self {
        Self(
            command
                .stdout(Stdio::piped())
                .spawn()
                .expect("the program runs"),
        )
    }

    fn wait_for(&mut self, address: &str) {
        wait_until(address, || {
            assert!(matches!(self.0.try_wait(), Ok(None)), "it ended");
            TcpStream::connect(address).is_ok()
        });
    }

    /// What it prints up to a line.
    fn read_until(&mut self, last: &str) -> String {
        let mut text = String::new();
        let mut stdout = BufReader::new(self.0.stdout.take().expect("piped"));
        while !text.ends_with(&format!("{last}\n")) {
            assert!(
                stdout.read_line(&mut text).expect("text") > 0,
                "ended after: {text}"
            );
        }
        // Whoever reads no more must not stop it from printing.
        std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        text
    }

    /// Sends SIGTERM; whether it ended well.
    fn end(mut self) -> bool {
        let status = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(status.expect("kill is there").success());
        self.0.wait().expect("it ends").success()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
