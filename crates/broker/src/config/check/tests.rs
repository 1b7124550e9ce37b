use super::*;
use crate::config::{ListenerSettings, hash_password};
use crate::scratch::Scratch;

fn on(listen: &str) -> Settings {
    Settings {
        listen: Some(vec![listen.into()]),
        ..Settings::default()
    }
}

#[test]
fn without_settings_a_node_is_anonymous_on_loopback_and_announces_itself_there() {
    let config = Settings::default().check().expect("defaults are good");
    assert!(config.listeners.iter().all(Listen::is_loopback));
    assert!(config.access.allows_anonymous());
    assert_eq!(config.secret, None);
    assert_eq!(
        config
            .multicast
            .expect("multicast is the default")
            .interface,
        Ipv4Addr::LOCALHOST
    );
    assert_eq!(config.cluster_name, "thicket");
    assert!(config.workers >= 1);
}

#[test]
fn seeds_and_names_in_dns_say_that_another_node_is_expected() {
    let names = || Some(vec!["b.example:1883".to_owned()]);
    let default = Settings::default;
    for (name, settings, expected) in [
        ("nothing", default(), 1),
        (
            "seeds",
            Settings {
                seed: names(),
                ..default()
            },
            2,
        ),
        (
            "names",
            Settings {
                dns_name: names(),
                ..default()
            },
            2,
        ),
        (
            "an island",
            Settings {
                dns_name: names(),
                expect_nodes: Some(1),
                ..default()
            },
            1,
        ),
    ] {
        let config = settings.check().expect("good");
        assert_eq!(config.expect_nodes, expected, "{name}");
    }
}

#[test]
fn an_open_listener_needs_a_choice_for_clients_and_one_for_links() {
    let scratch = Scratch::new();
    let secret = scratch.file("secret", "qM2f8mXbJ0sZrT1kVQ9wYc4hN7uLpE3a6GdRiBxOoDs=\n");
    let users = scratch.file(
        "users",
        &format!("ann:{}\n", hash_password(b"x").expect("randomness")),
    );
    let open = || on("0.0.0.0:1883");
    let cases = [
        ("nothing said", open(), Some((true, true))),
        (
            "clients only",
            Settings {
                allow_anonymous: Some(true),
                ..open()
            },
            Some((false, true)),
        ),
        (
            "links only",
            Settings {
                insecure_links: Some(true),
                ..open()
            },
            Some((true, false)),
        ),
        (
            "both open",
            Settings {
                allow_anonymous: Some(true),
                insecure_links: Some(true),
                ..open()
            },
            None,
        ),
        (
            "users and a secret",
            Settings {
                users: Some(users),
                cluster_secret_file: Some(secret),
                ..open()
            },
            None,
        ),
        (
            "certificates for links",
            Settings {
                allow_anonymous: Some(true),
                listen: Some(vec!["0.0.0.0:1883".into(), "link://0.0.0.0:1884".into()]),
                ..with_link_tls(&scratch)
            },
            None,
        ),
        (
            "certificates for links, and nothing said of clients",
            Settings {
                listen: Some(vec!["0.0.0.0:1883".into(), "link://0.0.0.0:1884".into()]),
                ..with_link_tls(&scratch)
            },
            Some((true, false)),
        ),
        (
            "only links come from elsewhere",
            Settings {
                listen: Some(vec!["localhost:1883".into(), "link://0.0.0.0:1884".into()]),
                ..with_link_tls(&scratch)
            },
            None,
        ),
        (
            "said no to anonymous",
            Settings {
                allow_anonymous: Some(false),
                insecure_links: Some(true),
                ..open()
            },
            Some((true, false)),
        ),
    ];
    for (name, settings, refused) in cases {
        let faults = settings.check().err();
        let faults: Vec<_> = faults.iter().flat_map(ConfigErrors::iter).collect();
        match (&faults[..], refused) {
            ([], None) => {}
            ([ConfigError::TooOpen(missing), ..], Some(expected)) => {
                assert_eq!((missing.clients, missing.links), expected, "{name}")
            }
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
}

fn with_link_tls(scratch: &Scratch) -> Settings {
    let made = rcgen::generate_simple_self_signed(vec!["node".to_owned()]).expect("a certificate");
    let certificate = scratch.file("link.crt", &made.cert.pem());
    Settings {
        link_tls_key: Some(scratch.file("link.key", &made.signing_key.serialize_pem())),
        link_tls_ca: Some(certificate.clone()),
        link_tls_certificate: Some(certificate),
        ..Settings::default()
    }
}

#[test]
fn settings_of_links_with_tls_that_make_no_sense_together_are_refused() {
    let scratch = Scratch::new();
    let listen = |all: &[&str]| Some(all.iter().map(|&text| text.to_owned()).collect());
    let both = listen(&["localhost:1883", "link://localhost:1884"]);
    let for_clients = |table: ListenerSettings| Settings {
        listen: both.clone(),
        listener: Some(vec![ListenerSettings {
            address: Some("link://localhost:1885".into()),
            ..table
        }]),
        ..with_link_tls(&scratch)
    };
    let cases = [
        (
            "no listener for links",
            Settings {
                listen: listen(&["localhost:1883"]),
                ..with_link_tls(&scratch)
            },
            "needs a listener for links",
        ),
        (
            "no listener for clients",
            Settings {
                listen: listen(&["link://localhost:1884"]),
                ..with_link_tls(&scratch)
            },
            "no client could connect",
        ),
        (
            "no certificate",
            Settings {
                listen: both.clone(),
                ..Settings::default()
            },
            "a cluster_secret_file, or link_tls_certificate, link_tls_key and link_tls_ca, for such a listener",
        ),
        (
            "no key",
            Settings {
                listen: both.clone(),
                link_tls_key: None,
                ..with_link_tls(&scratch)
            },
            "give all three or none",
        ),
        (
            "insecure too",
            Settings {
                listen: both.clone(),
                insecure_links: Some(true),
                ..with_link_tls(&scratch)
            },
            "exclude each other",
        ),
        (
            "clients where links come in",
            for_clients(ListenerSettings {
                topic_prefix: Some("a/".into()),
                ..ListenerSettings::default()
            }),
            "keys that are for clients",
        ),
    ];
    for (name, settings, expected) in cases {
        let error = settings.check().expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
    let good = Settings {
        listen: both,
        ..with_link_tls(&scratch)
    };
    let config = good.check().expect("it makes sense");
    let links: Vec<_> = config.listeners.iter().map(Listen::takes_links).collect();
    assert_eq!(links, [false, true]);
}

#[test]
fn the_refusal_of_an_open_listener_says_what_to_add() {
    let error = on("0.0.0.0:1883").check().expect_err("open").to_string();
    for word in [
        "0.0.0.0:1883",
        "--users FILE",
        "--allow-anonymous",
        "--cluster-secret-file FILE",
        "--link-tls-certificate",
        "--insecure-links",
    ] {
        assert!(error.contains(word), "`{word}` in {error}");
    }
}

#[test]
fn one_user_may_keep_a_part_of_memory_unless_configured_otherwise() {
    let bounds = |memory_bytes, user_queue_bytes| {
        let settings = Settings {
            workers: Some(2),
            memory_bytes: Some(memory_bytes),
            user_queue_bytes,
            ..Settings::default()
        };
        let limits = settings.check().expect("a valid configuration").limits;
        (limits.user_queue_bytes, limits.user_subscription_bytes)
    };
    let most = Limits::default();
    let most = (most.user_queue_bytes, most.user_subscription_bytes);
    assert_eq!(bounds(0, None), most, "no limit of memory");
    assert_eq!(bounds(1 << 40, None), most);
    assert_eq!(bounds(320_000_000, None), (40_000_000, 20_000_000));
    assert_eq!(bounds(320_000_000, Some(0)), (0, 20_000_000));
}

#[test]
fn a_session_has_one_copy_or_as_many_as_are_asked_for() {
    for (asked, expected) in [(None, 1), (Some(0), 0), (Some(2), 2), (Some(3), 3)] {
        let settings = Settings {
            backups: asked,
            ..Settings::default()
        };
        let config = settings.check().expect("fine");
        assert_eq!(config.backups, expected, "{asked:?}");
    }
}

#[test]
fn a_bad_value_is_refused_with_key_value_and_expectation() {
    let scratch = Scratch::new();
    let text = |value: &str| Some(value.to_owned());
    let default = Settings::default;
    let cases = [
        (
            "no port",
            on("localhost"),
            "listen = localhost: expected HOST:PORT",
        ),
        (
            "open api",
            Settings {
                http: text("0.0.0.0:80"),
                ..default()
            },
            "http = 0.0.0.0:80: expected `off`",
        ),
        (
            "seed without port",
            Settings {
                seed: Some(vec!["a".into()]),
                ..default()
            },
            "seed = a: expected HOST:PORT",
        ),
        (
            "bare IPv6 seed",
            Settings {
                seed: Some(vec!["fd00::1:1883".into()]),
                ..default()
            },
            "seed = fd00::1:1883: expected",
        ),
        (
            "too many backups",
            Settings {
                backups: Some(4),
                ..default()
            },
            "backups = 4: expected a number from 0 to 3",
        ),
        (
            "refusals without topics",
            Settings {
                redirect_refusals: Some(3),
                ..default()
            },
            "expected redirect = \"topics\"",
        ),
        (
            "too many refusals",
            Settings {
                redirect: Some(RedirectChoice::Topics),
                redirect_refusals: Some(65),
                ..default()
            },
            "redirect_refusals = 65: expected 0 to 64",
        ),
        (
            "no workers",
            Settings {
                workers: Some(0),
                ..default()
            },
            "workers = 0: expected 1 to 128",
        ),
        (
            "unicast group",
            Settings {
                multicast_group: text("10.0.0.1:5"),
                ..default()
            },
            "multicast_group = 10.0.0.1:5: expected an IPv4",
        ),
        (
            "no cluster name",
            Settings {
                cluster_name: text(""),
                ..default()
            },
            "cluster_name = \"\": expected 1 to 255",
        ),
        (
            "zero receive maximum",
            Settings {
                receive_maximum: Some(0),
                ..default()
            },
            "receive_maximum = 0: expected 1 to 65535",
        ),
        (
            "short secret",
            Settings {
                cluster_secret_file: Some(scratch.file("short", "abc")),
                ..default()
            },
            "in line 1; what is there could be guessed",
        ),
    ];
    for (name, settings, expected) in cases {
        let error = settings.check().expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn settings_that_exclude_each_other_are_refused() {
    use DiscoverChoice::{Dns, Multicast, Off};
    let default = Settings::default;
    let name = || Some(vec!["brokers:1883".to_owned()]);
    let cases = [
        (
            "off and multicast",
            Settings {
                discover: Some(vec![Off, Multicast]),
                ..default()
            },
            "discover = off excludes",
        ),
        (
            "dns without a name",
            Settings {
                discover: Some(vec![Dns]),
                ..default()
            },
            "needs a dns_name",
        ),
        (
            "a name without dns",
            Settings {
                discover: Some(vec![Off]),
                dns_name: name(),
                ..default()
            },
            "does not list dns",
        ),
        (
            "nobody at all",
            Settings {
                allow_anonymous: Some(false),
                ..default()
            },
            "needs a file of users",
        ),
    ];
    for (case, settings, expected) in cases {
        let error = settings.check().expect_err(case).to_string();
        assert!(error.contains(expected), "{case}: {error}");
    }
}

#[test]
fn a_dns_name_alone_adds_dns_to_multicast() {
    let settings = Settings {
        dns_name: Some(vec!["brokers:1883".into()]),
        ..Settings::default()
    };
    let config = settings.check().expect("a good name");
    assert!(config.multicast.is_some());
    assert_eq!(config.dns.expect("dns").names, ["brokers:1883"]);
}

#[test]
fn the_listener_for_placements_belongs_to_one_for_clients() {
    let text = |text: &str| Some(text.to_owned());
    let two = || Settings {
        listen: Some(vec!["127.0.0.1:1883".into(), "127.0.0.1:1884".into()]),
        placement_listen: text("127.0.0.1:18840"),
        ..Settings::default()
    };
    let of = |settings: Settings| {
        settings
            .check()
            .map(|it| it.placement.map(|it| it.listener))
    };
    let only = Settings {
        placement_listen: text("127.0.0.1:18840"),
        ..on("127.0.0.1:1883")
    };
    assert_eq!(of(only).expect("only one"), text("127.0.0.1:1883"));
    let named = Settings {
        placement_listener: text("127.0.0.1:1884"),
        ..two()
    };
    assert_eq!(of(named).expect("named"), text("127.0.0.1:1884"));
    let error = of(two()).expect_err("which of them?").to_string();
    assert!(error.contains("placement_listener = nothing"), "{error}");
    let open = Settings {
        placement_listen: text("0.0.0.0:18840"),
        ..on("127.0.0.1:1883")
    };
    let error = of(open.clone()).expect_err("open").to_string();
    assert!(error.contains("lets everybody in"), "{error}");
    let chosen = Settings {
        allow_anonymous: Some(true),
        ..open
    };
    assert!(of(chosen).is_ok(), "somebody said so");
}

#[test]
fn a_listener_takes_names_from_certificates_only_where_it_asks_for_them() {
    let table = |certificate_users| ListenerSettings {
        address: Some("127.0.0.1:1884".into()),
        certificate_users,
        ..ListenerSettings::default()
    };
    let of = |certificate_users, of_node| Settings {
        listener: Some(vec![table(certificate_users)]),
        certificate_users: of_node,
        ..Settings::default()
    };
    let error = of(Some(true), None).check().expect_err("asks for none");
    assert!(error.to_string().contains("asked for no certificate there"));
    let open = of(Some(false), Some(true)).check().expect("anonymous");
    let listener = &open.listeners[0];
    assert!(!listener.certificate_users && listener.allow_anonymous);
    let closed = of(None, Some(true)).check().expect("of the node");
    let listener = &closed.listeners[0];
    assert!(listener.certificate_users && !listener.allow_anonymous);
}

#[test]
fn an_address_that_others_are_given_does_not_stand_for_all_addresses() {
    for (address, is_good) in [
        ("broker-1:1883", true),
        ("10.0.0.1:1883", true),
        ("0.0.0.0:1883", false),
        ("[::]:1883", false),
    ] {
        let node = Settings {
            advertise: Some(address.into()),
            ..Settings::default()
        };
        let listener = Settings {
            listener: Some(vec![ListenerSettings {
                address: Some("127.0.0.1:1883".into()),
                advertise: Some(address.into()),
                ..ListenerSettings::default()
            }]),
            ..Settings::default()
        };
        for settings in [node, listener] {
            let checked = settings.check().map_err(|faults| faults.to_string());
            assert_eq!(checked.is_ok(), is_good, "{address}: {:?}", checked.err());
        }
    }
}

#[test]
fn a_majority_needs_data_unless_the_node_is_to_store_nothing() {
    use thicket_node::Partition;
    for (choice, data, expected) in [
        (PartitionChoice::Serve, None, Some(Partition::Serve)),
        (PartitionChoice::Majority, None, None),
        (
            PartitionChoice::Majority,
            Some("data"),
            Some(Partition::Majority),
        ),
        (
            PartitionChoice::MajorityWithoutData,
            None,
            Some(Partition::Majority),
        ),
        (
            PartitionChoice::MajorityWithoutData,
            Some("data"),
            Some(Partition::Majority),
        ),
    ] {
        let settings = Settings {
            partition: Some(choice),
            data: data.map(Into::into),
            ..Settings::default()
        };
        let checked = settings.check();
        let found = checked.as_ref().ok().map(|config| config.partition);
        assert_eq!(found, expected, "{choice:?} {data:?}");
        if let Err(error) = checked {
            let error = error.to_string();
            assert!(error.contains("majority-without-data"), "{error}");
        }
    }
}
