//! Settings as people write them: one struct for the file, the flags and the environment.

use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

use super::choices::{
    Acknowledgement, AlgorithmChoice, ClientCertificateChoice, DiscoverChoice, LogFormat, LogLevel,
    OnFailure, OnFullChoice, PartitionChoice, RebalanceChoice, RedirectChoice,
    RedirectPolicyChoice, SandboxChoice, SessionScopeChoice,
};
use super::ratio::SampleRatio;
use super::tables::{BridgeSettings, HookSettings, ListenerSettings, TenantSettings};
use super::units;
use crate::storage::SyncMode;

/// Every setting of a node; what is `None` was not given.
///
/// The doc comment of a field is the help of its flag. The field's name is the key in the file. Flat, as the parser of files refuses unknown keys only
/// where no struct is flattened into another one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Name of this node, for people [default: the host's name and the port]
    #[arg(long, env = "THICKET_NAME")]
    pub name: Option<String>,
    /// Name of the cluster; nodes with another one are refused [default: thicket]
    #[arg(long, env = "THICKET_CLUSTER_NAME", value_name = "NAME")]
    pub cluster_name: Option<String>,
    /// Where clients and other nodes connect: HOST:PORT, with tls://, ws:// or wss:// before it for more than TCP, or
    /// unix:PATH; repeats [default: localhost:1883]
    #[arg(
        long,
        env = "THICKET_LISTEN",
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    pub listen: Option<Vec<String>>,
    /// Listeners with settings of their own: tables `[[listener]]` of the file
    #[arg(skip)]
    pub listener: Option<Vec<ListenerSettings>>,
    /// Limits of all clients and topics below a topic prefix: tables `[[tenant]]` of the file
    #[arg(skip)]
    pub tenant: Option<Vec<TenantSettings>>,
    /// Bridges to brokers of another kind: tables `[[bridge]]` of the file
    #[arg(skip)]
    pub bridge: Option<Vec<BridgeSettings>>,
    /// Receivers of events: tables `[[hook]]` of the file
    #[arg(skip)]
    pub hook: Option<Vec<HookSettings>>,
    /// PEM file of the certificate for TLS listeners, followed by those of its authorities
    #[arg(long, env = "THICKET_TLS_CERTIFICATE", value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file of its key
    #[arg(long, env = "THICKET_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// PEM file of the trusted authorities for client certificates
    #[arg(long, env = "THICKET_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Client certificates: off, optional or required [default: off]
    #[arg(long, env = "THICKET_TLS_CLIENT_CERTIFICATE", value_name = "CHOICE")]
    pub tls_client_certificate: Option<ClientCertificateChoice>,
    /// Path of WebSocket listeners [default: /mqtt]
    #[arg(long, env = "THICKET_WEBSOCKET_PATH", value_name = "PATH")]
    pub websocket_path: Option<String>,
    /// Address under which other nodes reach this one [default: the first listener's address]
    #[arg(long, env = "THICKET_ADVERTISE", value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Address of the HTTP API, on loopback unless it has users; or `off` [default: 127.0.0.1:18830]
    #[arg(long, env = "THICKET_HTTP", value_name = "HOST:PORT")]
    pub http: Option<String>,
    /// Address of a port that serves only `/live` and `/ready`, without users [default: off]
    #[arg(long, env = "THICKET_PROBE", value_name = "HOST:PORT")]
    pub probe: Option<String>,
    /// Address where clients request placements over HTTP, and nothing else, with the users of an MQTT listener, and with TLS if that has TLS [default: off]
    #[arg(long, env = "THICKET_PLACEMENT_LISTEN", value_name = "HOST:PORT")]
    pub placement_listen: Option<String>,
    /// The MQTT listener whose credentials, rights and topic prefix apply there, by its address in `listen` or `address` [default: the only one]
    #[arg(long, env = "THICKET_PLACEMENT_LISTENER", value_name = "LISTENER")]
    pub placement_listener: Option<String>,
    /// Address of another node to connect to; repeats
    #[arg(
        long,
        env = "THICKET_SEED",
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    pub seed: Option<Vec<String>>,
    /// Nodes, this one included, that must have been up at the same time before this node is ready; 1: it may be alone [default: 2 with seeds or DNS names, else 1]
    #[arg(long, env = "THICKET_EXPECT_NODES", value_name = "COUNT")]
    pub expect_nodes: Option<u32>,
    /// How to find other nodes besides seeds; repeats [default: multicast, and dns if there is a --dns-name]
    #[arg(long, env = "THICKET_DISCOVER", value_delimiter = ',')]
    pub discover: Option<Vec<DiscoverChoice>>,
    /// Multicast group of the announcements [default: 239.255.18.83:18830]
    #[arg(long, env = "THICKET_MULTICAST_GROUP", value_name = "ADDRESS:PORT")]
    pub multicast_group: Option<String>,
    /// How far announcements travel: 0 this host, 1 this network, more: across routers [default: 1]
    #[arg(long, env = "THICKET_MULTICAST_TTL", value_name = "HOPS")]
    pub multicast_ttl: Option<u8>,
    /// Address of the interface for announcements [default: loopback if all listeners are, else the system's choice]
    #[arg(long, env = "THICKET_MULTICAST_INTERFACE", value_name = "ADDRESS")]
    pub multicast_interface: Option<String>,
    /// Time between two announcements [default: 3s]
    #[arg(long, env = "THICKET_MULTICAST_INTERVAL_MS", value_name = "TIME")]
    #[arg(value_parser = units::millis::<u64>)]
    #[serde(deserialize_with = "units::millis_of_file")]
    pub multicast_interval_ms: Option<u64>,
    /// DNS name whose addresses are all nodes; repeats
    #[arg(
        long,
        env = "THICKET_DNS_NAME",
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    pub dns_name: Option<Vec<String>>,
    /// Time between two look-ups of the DNS names [default: 15s]
    #[arg(long, env = "THICKET_DNS_INTERVAL_S", value_name = "TIME")]
    #[arg(value_parser = units::seconds::<u64>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub dns_interval_s: Option<u64>,
    /// How long a starting node looks for others before it accepts clients [default: 500ms, or 0 without discovery and seeds]
    #[arg(long, env = "THICKET_DISCOVERY_GRACE_MS", value_name = "TIME")]
    #[arg(value_parser = units::millis::<u64>)]
    #[serde(deserialize_with = "units::millis_of_file")]
    pub discovery_grace_ms: Option<u64>,
    /// How long a node that starts again waits for the other members before it accepts clients, if
    /// no node that it reaches does [default: 30s]
    #[arg(long, env = "THICKET_RESTART_GRACE_S", value_name = "TIME")]
    #[arg(value_parser = units::seconds::<u64>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub restart_grace_s: Option<u64>,
    /// How messages are routed to other nodes: mesh, topic, tree or flood; the same on all nodes [default: mesh]
    #[arg(long, env = "THICKET_ROUTING", value_name = "MODE")]
    pub routing: Option<String>,
    /// How the root of a tree is chosen: by capacity, balance or delay [default: capacity]
    #[arg(long, env = "THICKET_ROOT_POLICY", value_name = "POLICY")]
    pub root_policy: Option<String>,
    /// Weight of the free CPU in a node's capability [default: 1]
    #[arg(long, env = "THICKET_ROOT_ALPHA", value_name = "WEIGHT")]
    pub root_alpha: Option<u32>,
    /// Weight of the free memory in a node's capability [default: 1]
    #[arg(long, env = "THICKET_ROOT_BETA", value_name = "WEIGHT")]
    pub root_beta: Option<u32>,
    /// Weight of the number of trees that a node is the root of, with the policy balance [default: 10]
    #[arg(long, env = "THICKET_ROOT_GAMMA", value_name = "WEIGHT")]
    pub root_gamma: Option<u32>,
    /// Weight of the number of a node's clients, with the policy balance [default: 1]
    #[arg(long, env = "THICKET_ROOT_DELTA", value_name = "WEIGHT")]
    pub root_delta: Option<u32>,
    /// Maximum number of topic trees that a node uses; beyond that it uses the tree of all nodes [default: 1024]
    #[arg(long, env = "THICKET_MAXIMUM_TREES", value_name = "COUNT")]
    pub maximum_trees: Option<u32>,
    /// Threads that serve clients [default: one for each core]
    #[arg(long, env = "THICKET_WORKERS")]
    pub workers: Option<u32>,
    /// Directory for data that must survive a restart [default: nothing is stored]
    #[arg(long, env = "THICKET_DATA", value_name = "DIRECTORY")]
    pub data: Option<PathBuf>,
    /// When data is synced to the disk: before each acknowledgement, or once a second; or nothing is stored [default: interval]
    #[arg(long, env = "THICKET_SYNC", value_name = "WHEN")]
    pub sync: Option<SyncMode>,
    /// Backups of each persistent session on other nodes, 0 to 3; so many nodes may be lost at once [default: 1]
    #[arg(long, env = "THICKET_BACKUPS", value_name = "COUNT")]
    pub backups: Option<u32>,
    /// Bytes of messages kept for sessions of one node that is down (hinted handoff); four times as much for all such nodes [default: 64MiB]
    #[arg(long, env = "THICKET_HINT_BYTES", value_name = "SIZE")]
    #[arg(value_parser = units::bytes::<u64>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub hint_bytes: Option<u64>,
    /// What an acknowledgement waits for: the backups of the session, or only this node [default: replicated]
    #[arg(long, env = "THICKET_ACK", value_name = "WHERE")]
    pub ack: Option<Acknowledgement>,
    /// During a partition: every side serves, or only a side with more than half of all members, which needs --data [default: serve]
    #[arg(long, env = "THICKET_PARTITION", value_name = "WHO")]
    pub partition: Option<PartitionChoice>,
    /// Whether clients of MQTT 5.0 are redirected to other nodes: by load, or by their topics where these are known; the same on all nodes
    /// [default: off]
    #[arg(long, env = "THICKET_REDIRECT", value_name = "WHETHER")]
    #[arg(help_heading = "Redirection")]
    pub redirect: Option<RedirectChoice>,
    /// Which parts of a node's load count [default: combined]
    #[arg(long, env = "THICKET_REDIRECT_POLICY", value_name = "POLICY")]
    #[arg(help_heading = "Redirection")]
    pub redirect_policy: Option<RedirectPolicyChoice>,
    /// With --redirect topics: CONNECTs of a client before MQTT 5.0 that are refused, one after the other, where its topics are not, so that its
    /// load balancer picks another node; 0 to 64, 0: none [default: 0]
    #[arg(long, env = "THICKET_REDIRECT_REFUSALS", value_name = "COUNT")]
    #[arg(help_heading = "Redirection")]
    pub redirect_refusals: Option<u32>,
    /// Maximum number of clients redirected in a second [default: 500]
    #[arg(long, env = "THICKET_REDIRECT_PER_S", value_name = "COUNT")]
    #[arg(help_heading = "Redirection")]
    pub redirect_per_s: Option<u32>,
    /// Nodes in a Server Reference, 1 to 8: not every client library can read more than one [default: 1]
    #[arg(long, env = "THICKET_REDIRECT_REFERENCES", value_name = "COUNT")]
    #[arg(help_heading = "Redirection")]
    pub redirect_references: Option<u32>,
    /// Whether connected clients of MQTT 5.0 are moved to nodes with more capacity and to their topics: not at all, only planned,
    /// or moved; the same on all nodes [default: suggest]
    #[arg(long, env = "THICKET_REBALANCE", value_name = "WHETHER")]
    #[arg(help_heading = "Redirection")]
    pub rebalance: Option<RebalanceChoice>,
    /// Minimum time between two moves of one client, seconds [default: 60]
    #[arg(long, env = "THICKET_REBALANCE_REST_S", value_name = "SECONDS")]
    #[arg(help_heading = "Redirection", value_parser = units::seconds::<u64>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub rebalance_rest_s: Option<u64>,
    /// The site of this node, such as a data centre: nodes with the same name are at one site [default: none, round trips decide]
    #[arg(long, env = "THICKET_SITE", value_name = "NAME")]
    #[arg(help_heading = "Redirection")]
    pub site: Option<String>,
    /// Price of a GB (10^9 bytes) from one site to another, `*` being any; repeats; the same on all nodes. Placements and moves keep
    /// the cost low [default: traffic costs nothing]
    #[arg(
        long,
        env = "THICKET_SITE_PRICE",
        value_name = "FROM:TO=PRICE",
        value_delimiter = ','
    )]
    #[arg(help_heading = "Redirection")]
    pub site_price: Option<Vec<String>>,
    /// Accept clients without a user name [default: on loopback listeners without --users]
    #[arg(long, env = "THICKET_ALLOW_ANONYMOUS", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_anonymous: Option<bool>,
    /// File of users: a line `name:$argon2id$...` for each, as `thicket passwd` prints it
    #[arg(long, env = "THICKET_USERS", value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// File of rights to publish and subscribe: lines `user NAME`, `topic read|write|readwrite|deny FILTER`, `pattern ...`
    #[arg(long, env = "THICKET_ACL", value_name = "FILE")]
    #[arg(help_heading = "Users and rights")]
    pub acl: Option<PathBuf>,
    /// Use the name in a client's verified certificate as its user name, without a password
    #[arg(long, env = "THICKET_CERTIFICATE_USERS", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Users and rights")]
    pub certificate_users: Option<bool>,
    /// Accept JSON Web Tokens as passwords: file with the secret or the public key (PEM) of their signatures
    #[arg(long, env = "THICKET_JWT_KEY", value_name = "FILE")]
    #[arg(help_heading = "Users and rights")]
    pub jwt_key: Option<PathBuf>,
    /// Algorithm of the tokens' signatures
    #[arg(long, env = "THICKET_JWT_ALGORITHM", value_name = "ALGORITHM")]
    #[arg(help_heading = "Users and rights")]
    pub jwt_algorithm: Option<AlgorithmChoice>,
    /// Accept JSON Web Tokens as passwords: URL of their provider's keys (a JWK set); https, or http on loopback
    #[arg(long, env = "THICKET_JWT_JWKS", value_name = "URL")]
    #[arg(help_heading = "Users and rights")]
    pub jwt_jwks: Option<String>,
    /// Accept JSON Web Tokens as passwords: URL of their OpenID Connect issuer, which names the URL of its keys
    #[arg(long, env = "THICKET_JWT_OIDC_ISSUER", value_name = "URL")]
    #[arg(help_heading = "Users and rights")]
    pub jwt_oidc_issuer: Option<String>,
    /// PEM file of the authorities that the provider of keys is checked against [default: those the system trusts]
    #[arg(long, env = "THICKET_JWT_CA", value_name = "FILE")]
    #[arg(help_heading = "Users and rights")]
    pub jwt_ca: Option<PathBuf>,
    /// How often the keys are fetched from their provider [default: 5min]
    #[arg(long, env = "THICKET_JWT_REFRESH_S", value_name = "TIME")]
    #[arg(help_heading = "Users and rights", value_parser = units::seconds::<u64>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub jwt_refresh_s: Option<u64>,
    /// Only tokens of this issuer (`iss`)
    #[arg(long, env = "THICKET_JWT_ISSUER", value_name = "NAME")]
    #[arg(help_heading = "Users and rights")]
    pub jwt_issuer: Option<String>,
    /// Only tokens for this audience (`aud`)
    #[arg(long, env = "THICKET_JWT_AUDIENCE", value_name = "NAME")]
    #[arg(help_heading = "Users and rights")]
    pub jwt_audience: Option<String>,
    /// The claim that is the user name, such as preferred_username [default: sub]
    #[arg(long, env = "THICKET_JWT_USER_CLAIM", value_name = "NAME")]
    #[arg(help_heading = "Users and rights")]
    pub jwt_user_claim: Option<String>,
    /// Accept tokens without `exp`: they are valid until the key changes [default: false]
    #[arg(long, env = "THICKET_JWT_ALLOW_NO_EXPIRY", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Users and rights")]
    pub jwt_allow_no_expiry: Option<bool>,
    /// URL of a hook that decides about clients that no other source has: http://HOST:PORT/PATH
    #[arg(long, env = "THICKET_AUTH_HOOK", value_name = "URL")]
    #[arg(help_heading = "Users and rights")]
    pub auth_hook: Option<String>,
    /// PEM file of the authorities that an https hook is checked against [default: those the system trusts]
    #[arg(long, env = "THICKET_AUTH_HOOK_CA", value_name = "FILE")]
    #[arg(help_heading = "Users and rights")]
    pub auth_hook_ca: Option<PathBuf>,
    /// Longest wait for the hook's answer [default: 1s]
    #[arg(long, env = "THICKET_AUTH_HOOK_TIMEOUT_MS", value_name = "TIME")]
    #[arg(help_heading = "Users and rights", value_parser = units::millis::<u64>)]
    #[serde(deserialize_with = "units::millis_of_file")]
    pub auth_hook_timeout_ms: Option<u64>,
    /// How long the hook's answer is valid; 0: it is asked each time [default: 60s]
    #[arg(long, env = "THICKET_AUTH_HOOK_CACHE_S", value_name = "TIME")]
    #[arg(help_heading = "Users and rights", value_parser = units::seconds::<u64>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub auth_hook_cache_s: Option<u64>,
    /// What happens to a client if the hook does not answer [default: unavailable]
    #[arg(long, env = "THICKET_AUTH_HOOK_ON_FAILURE", value_name = "CHOICE")]
    #[arg(help_heading = "Users and rights")]
    pub auth_hook_on_failure: Option<OnFailure>,
    /// File of users of the HTTP API: a line `viewer|admin|metrics NAME:HASH` for each, as `thicket passwd --role` prints it
    #[arg(long, env = "THICKET_HTTP_USERS", value_name = "FILE")]
    #[arg(help_heading = "Users and rights")]
    pub http_users: Option<PathBuf>,
    /// File of tokens of the HTTP API: a line `SCOPE NAME EXPIRES HASH` for each, as `thicket token` prints it
    #[arg(long, env = "THICKET_HTTP_TOKENS", value_name = "FILE")]
    #[arg(help_heading = "Users and rights")]
    pub http_tokens: Option<PathBuf>,
    /// Host names under which an HTTP API with users answers, besides this host's own; repeats
    #[arg(
        long,
        env = "THICKET_HTTP_HOSTS",
        value_name = "NAME",
        value_delimiter = ','
    )]
    #[arg(help_heading = "Users and rights")]
    pub http_hosts: Option<Vec<String>>,
    /// File with a random secret that all nodes of the cluster share (`head -c 32 /dev/urandom | base64`): links are encrypted with keys
    /// derived from it. Of several lines the first is used, and all are accepted
    #[arg(long, env = "THICKET_CLUSTER_SECRET_FILE", value_name = "FILE")]
    pub cluster_secret_file: Option<PathBuf>,
    /// PEM file of the certificate that this node presents to other nodes instead of the secret; links are then accepted only at listeners `link://HOST:PORT`
    #[arg(long, env = "THICKET_LINK_TLS_CERTIFICATE", value_name = "FILE")]
    pub link_tls_certificate: Option<PathBuf>,
    /// PEM file of its key
    #[arg(long, env = "THICKET_LINK_TLS_KEY", value_name = "FILE")]
    pub link_tls_key: Option<PathBuf>,
    /// PEM file of the authority that signs the certificates of this cluster's nodes, and only these
    #[arg(long, env = "THICKET_LINK_TLS_CA", value_name = "FILE")]
    pub link_tls_ca: Option<PathBuf>,
    /// Accept every node with the cluster's name, over links without encryption [default: on loopback listeners]
    #[arg(long, env = "THICKET_INSECURE_LINKS", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub insecure_links: Option<bool>,
    /// Whether the process may write only below --data and the directories of its Unix sockets and
    /// dead letters, and execute nothing: as far as the kernel can enforce that (Landlock), or not
    /// at all [default: auto]
    #[arg(long, env = "THICKET_SANDBOX", value_name = "WHETHER")]
    pub sandbox: Option<SandboxChoice>,
    /// Lowest level of lines in the log [default: info]
    #[arg(long, env = "THICKET_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
    /// Format of the log [default: text]
    #[arg(long, env = "THICKET_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Largest packet accepted, bytes [default: 1MiB]
    #[arg(long, env = "THICKET_MAXIMUM_PACKET_SIZE", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u32>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub maximum_packet_size: Option<u32>,
    /// QoS 1 and 2 messages a client may have unacknowledged [default: 1024]
    #[arg(long, env = "THICKET_RECEIVE_MAXIMUM", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub receive_maximum: Option<u16>,
    /// Topic aliases a client may set [default: 64]
    #[arg(long, env = "THICKET_TOPIC_ALIAS_MAXIMUM", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub topic_alias_maximum: Option<u16>,
    /// Messages in flight to a client that states no Receive Maximum [default: 1024]
    #[arg(long, env = "THICKET_INFLIGHT_MAXIMUM", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub inflight_maximum: Option<u16>,
    /// Messages queued for one session [default: 100000]
    #[arg(long, env = "THICKET_QUEUE_MESSAGES", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub queue_messages: Option<u32>,
    /// Bytes queued for one session [default: 64MiB]
    #[arg(long, env = "THICKET_QUEUE_BYTES", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u64>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub queue_bytes: Option<u64>,
    /// What happens to a QoS 1 or 2 message if a queue is full [default: drop]
    #[arg(long, env = "THICKET_ON_FULL", value_name = "CHOICE")]
    #[arg(help_heading = "Limits")]
    pub on_full: Option<OnFullChoice>,
    /// Bytes that may wait to be written to one connection [default: 4MiB]
    #[arg(long, env = "THICKET_OUT_BUFFER_BYTES", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u32>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub out_buffer_bytes: Option<u32>,
    /// Subscriptions of one session [default: 10000]
    #[arg(long, env = "THICKET_SUBSCRIPTIONS", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub subscriptions: Option<u32>,
    /// Longest client identifier, bytes [default: 1024]
    #[arg(long, env = "THICKET_CLIENT_ID_BYTES", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u16>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub client_id_bytes: Option<u16>,
    /// Who owns a session: its user, so that another user with the same client identifier has another session; or any client with the
    /// identifier; the same on all nodes [default: user]
    #[arg(long, env = "THICKET_SESSION_SCOPE", value_name = "WHOSE")]
    #[arg(help_heading = "Users and rights")]
    pub session_scope: Option<SessionScopeChoice>,
    /// Persistent sessions in a thread; beyond that only clients that have one are accepted; 0: no limit [default: 1000000]
    #[arg(long, env = "THICKET_SESSIONS", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub sessions: Option<u32>,
    /// Persistent sessions of one user in a thread; 0: no limit [default: 100000]
    #[arg(long, env = "THICKET_USER_SESSIONS", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub user_sessions: Option<u32>,
    /// Persistent sessions of the clients of one address in a thread (IPv6: of one /64 network); 0: no limit [default: 20000]
    #[arg(long, env = "THICKET_ADDRESS_SESSIONS", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub address_sessions: Option<u32>,
    /// Messages that a client may publish in a second, 0: any number; one that publishes more is disconnected [default: 0]
    #[arg(long, env = "THICKET_CLIENT_MESSAGES_PER_S", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub client_messages_per_s: Option<u32>,
    /// Bytes of topics and payloads that a client may publish in a second; 0: no limit [default: 0]
    #[arg(long, env = "THICKET_CLIENT_BYTES_PER_S", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u32>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub client_bytes_per_s: Option<u32>,
    /// Bytes of subscriptions of one user, and of one address, in a thread; 0: no limit [default: 128MiB, at most an eighth of memory_bytes in all threads]
    #[arg(long, env = "THICKET_USER_SUBSCRIPTION_BYTES", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u64>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub user_subscription_bytes: Option<u64>,
    /// Bytes queued for the sessions of one user, or of clients without one from one address, in a thread; 0: no limit [default: 512MiB, at most a quarter of memory_bytes in all threads]
    #[arg(long, env = "THICKET_USER_QUEUE_BYTES", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u64>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub user_queue_bytes: Option<u64>,
    /// Levels of a topic or filter [default: 128]
    #[arg(long, env = "THICKET_TOPIC_LEVELS", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub topic_levels: Option<u16>,
    /// Longest session expiry granted; 4294967295 means never [default: 4294967295]
    #[arg(long, env = "THICKET_SESSION_EXPIRY_MAXIMUM_S", value_name = "TIME")]
    #[arg(help_heading = "Limits", value_parser = units::seconds::<u32>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub session_expiry_maximum_s: Option<u32>,
    /// Longest keep alive granted to clients of MQTT 5.0; 0: any, off included. Older clients keep their own [default: 0]
    #[arg(long, env = "THICKET_KEEP_ALIVE_MAXIMUM_S", value_name = "TIME")]
    #[arg(help_heading = "Limits", value_parser = units::seconds::<u16>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub keep_alive_maximum_s: Option<u16>,
    /// Time for the CONNECT of a client, and for the head of a request to the HTTP API [default: 10s]
    #[arg(long, env = "THICKET_CONNECT_TIMEOUT_S", value_name = "TIME")]
    #[arg(help_heading = "Limits", value_parser = units::seconds::<u64>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub connect_timeout_s: Option<u64>,
    /// A publisher moves to another worker after this many messages whose recipients are all there; 0: never [default: 64]
    #[arg(long, env = "THICKET_RELOCATE_AFTER", value_name = "MESSAGES")]
    #[arg(help_heading = "Limits")]
    pub relocate_after: Option<u32>,
    /// Add a reason string to the reason code in CONNACK and DISCONNECT [default: false]
    #[arg(long, env = "THICKET_REASON_STRINGS", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub reason_strings: Option<bool>,
    /// Maximum number of client connections; 0: as many as the process may open [default: 0]
    #[arg(long, env = "THICKET_CONNECTIONS", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub connections: Option<u32>,
    /// Most connections to the HTTP API at a time; beyond that a new one replaces one without a complete request [default: 64]
    #[arg(long, env = "THICKET_HTTP_CONNECTIONS", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub http_connections: Option<u32>,
    /// Maximum number of new connections a second at a listener; others wait; 0: no limit [default: 10000]
    #[arg(long, env = "THICKET_CONNECTIONS_PER_S", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub connections_per_s: Option<u32>,
    /// Connects of a client within `flapping_window_s`; one that connects more often is banned for `flapping_ban_s`; 0: no limit [default: 0]
    #[arg(long, env = "THICKET_FLAPPING_CONNECTS", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub flapping_connects: Option<u32>,
    /// Time in which connects of a client are counted [default: 1min]
    #[arg(long, env = "THICKET_FLAPPING_WINDOW_S", value_name = "TIME")]
    #[arg(help_heading = "Limits", value_parser = units::seconds::<u64>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub flapping_window_s: Option<u64>,
    /// How long a client that connects too often is banned [default: 5min]
    #[arg(long, env = "THICKET_FLAPPING_BAN_S", value_name = "TIME")]
    #[arg(help_heading = "Limits", value_parser = units::seconds::<u64>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub flapping_ban_s: Option<u64>,
    /// Bytes that all connections of a thread together may hold before their CONNECT is complete and answered [default: 64MiB]
    #[arg(long, env = "THICKET_HALF_OPEN_BYTES", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u64>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub half_open_bytes: Option<u64>,
    /// Memory of the process above which new sessions are refused and QoS 0 is dropped early; a quarter above it all new connections are
    /// closed; 0: no limit [default: three quarters of the machine's or the control group's]
    #[arg(long, env = "THICKET_MEMORY_BYTES", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u64>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub memory_bytes: Option<u64>,
    /// Time between two rounds of the $SYS topics; 0: none are published [default: 10s]
    #[arg(long, env = "THICKET_SYS_INTERVAL_S", value_name = "TIME")]
    #[arg(value_parser = units::seconds::<u64>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub sys_interval_s: Option<u64>,
    /// URL of the OTLP receiver of metrics, traces and log lines, HTTP with protobuf: http://HOST:PORT or https://HOST:PORT [default: none]
    #[arg(long, env = "THICKET_OTLP_ENDPOINT", value_name = "URL")]
    #[arg(help_heading = "Telemetry")]
    pub otlp_endpoint: Option<String>,
    /// PEM file of the authorities that an https receiver is checked against [default: those the system trusts]
    #[arg(long, env = "THICKET_OTLP_CA", value_name = "FILE")]
    #[arg(help_heading = "Telemetry")]
    pub otlp_ca: Option<PathBuf>,
    /// Headers of every request, such as those that authenticate: lines `NAME: VALUE`
    #[arg(long, env = "THICKET_OTLP_HEADERS_FILE", value_name = "FILE")]
    #[arg(help_heading = "Telemetry")]
    pub otlp_headers_file: Option<PathBuf>,
    /// Time between two requests with metrics [default: 60s]
    #[arg(long, env = "THICKET_OTLP_INTERVAL", value_name = "TIME")]
    #[arg(help_heading = "Telemetry", value_parser = units::seconds::<u64>)]
    #[serde(deserialize_with = "units::seconds_of_file")]
    pub otlp_interval: Option<u64>,
    /// Whether spans of messages are sent too: of those that are sampled by their user property `traceparent` or by --otlp-sample
    /// [default: true]
    #[arg(long, env = "THICKET_OTLP_TRACES", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Telemetry")]
    pub otlp_traces: Option<bool>,
    /// Ratio of the messages without `traceparent` that start a trace, from 0 to 1; the property is added to them [default: 0]
    #[arg(long, env = "THICKET_OTLP_SAMPLE", value_name = "RATIO")]
    #[arg(help_heading = "Telemetry")]
    pub otlp_sample: Option<SampleRatio>,
    /// Maximum number of spans that wait to be sent; beyond that they are dropped and counted [default: 2048]
    #[arg(long, env = "THICKET_OTLP_QUEUE_SPANS", value_name = "COUNT")]
    #[arg(help_heading = "Telemetry")]
    pub otlp_queue_spans: Option<usize>,
    /// Whether the log lines that are written are sent too [default: false]
    #[arg(long, env = "THICKET_OTLP_LOGS", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Telemetry")]
    pub otlp_logs: Option<bool>,
    /// Most log lines that wait to be sent; beyond that they are dropped and counted [default: 2048]
    #[arg(long, env = "THICKET_OTLP_QUEUE_LOG_RECORDS", value_name = "COUNT")]
    #[arg(help_heading = "Telemetry")]
    pub otlp_queue_log_records: Option<usize>,
    /// Retained messages of the cluster [default: 1000000]
    #[arg(long, env = "THICKET_RETAINED_MESSAGES", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub retained_messages: Option<u64>,
    /// Bytes of retained messages of the cluster [default: 256MiB]
    #[arg(long, env = "THICKET_RETAINED_BYTES", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u64>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub retained_bytes: Option<u64>,
    /// Retained messages that one user, or clients without one from one address, published at all nodes together; 0: no limit [default: 500000]
    #[arg(long, env = "THICKET_USER_RETAINED_MESSAGES", value_name = "COUNT")]
    #[arg(help_heading = "Limits")]
    pub user_retained_messages: Option<u64>,
    /// Bytes of retained messages of one user in the same way; 0: no limit [default: 128MiB]
    #[arg(long, env = "THICKET_USER_RETAINED_BYTES", value_name = "SIZE")]
    #[arg(help_heading = "Limits", value_parser = units::bytes::<u64>)]
    #[serde(deserialize_with = "units::bytes_of_file")]
    pub user_retained_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_flag_and_an_environment_variable_named_after_it() {
        let command = Settings::augment_args(clap::Command::new("test"));
        let mut count = 0;
        for argument in command.get_arguments() {
            let key = argument.get_id().as_str();
            assert_eq!(
                argument.get_long(),
                Some(key.replace('_', "-").as_str()),
                "flag of {key}"
            );
            let variable = format!("THICKET_{}", key.to_uppercase());
            assert_eq!(
                argument.get_env().and_then(|name| name.to_str()),
                Some(variable.as_str()),
                "variable of {key}"
            );
            count += 1;
        }
        assert!(count > 30, "only {count} keys");
    }
}
