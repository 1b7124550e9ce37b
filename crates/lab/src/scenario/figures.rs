//! The figures that a report can draw, among which a scenario chooses.

/// The figures to draw if their numbers exist: name of the number, title, axis.
pub(crate) const FIGURES: [(&str, &str, &str); 25] = [
    (
        "sustainable_msgs_per_s",
        "Highest sustainable rate",
        "messages/s",
    ),
    (
        "difference_msgs_per_s",
        "Difference between the busiest and the idlest broker at the end",
        "messages/s",
    ),
    (
        "difference_cpu_percent",
        "Difference of CPU between them, mean over time",
        "% of a core",
    ),
    (
        "internal_msgs_per_s",
        "Messages from node to node",
        "messages/s",
    ),
    (
        "broker_cpu_us_per_message",
        "CPU of all nodes a message to a subscriber",
        "us",
    ),
    ("connects_per_s", "Connections accepted", "1/s"),
    (
        "memory_bytes_per_connection",
        "Memory of an idle connection",
        "bytes",
    ),
    (
        "broker_start_s",
        "Start of a broker, until it is ready",
        "s",
    ),
    ("join_s", "Start of a broker that joins under load", "s"),
    (
        "converged_max_s",
        "From a broker's start to trees that all agree on, longest",
        "s",
    ),
    (
        "repaired_max_s",
        "From the last sign of a lost broker to trees without it, longest",
        "s",
    ),
    (
        "reconnect_max_ms",
        "From the loss of a connection to the next CONNACK, longest",
        "ms",
    ),
    ("delay_mean_ms", "End-to-end delay, mean", "ms"),
    ("delay_p99_ms", "End-to-end delay, 99th percentile", "ms"),
    (
        "acknowledgement_mean_ms",
        "Time until a publisher has the acknowledgement, mean",
        "ms",
    ),
    (
        "acknowledgement_p99_ms",
        "Time until a publisher has the acknowledgement, 99th percentile",
        "ms",
    ),
    (
        "control_traffic_bytes_per_s",
        "Traffic between sites without clients",
        "bytes/s",
    ),
    (
        "subscriptions_traffic_bytes",
        "Traffic between sites while clients connect and subscribe",
        "bytes",
    ),
    (
        "publish_traffic_bytes",
        "Traffic between sites while messages are published",
        "bytes",
    ),
    (
        "publish_broker_cpu_percent",
        "CPU of a broker while messages are published",
        "% of a core",
    ),
    (
        "publish_broker_memory_mib",
        "Memory of a broker while messages are published",
        "MiB",
    ),
    ("lost_messages", "Messages lost", "messages"),
    ("refused_messages", "Publications refused", "messages"),
    (
        "closed_connections",
        "Connections that brokers closed",
        "connections",
    ),
    (
        "longest_silence_s",
        "Longest time a subscriber got nothing",
        "s",
    ),
];

/// Names of the numbers that a report can draw.
pub(super) fn names() -> Vec<&'static str> {
    FIGURES.iter().map(|(name, ..)| *name).collect()
}
