//! Arbitrary valid packets of each version. What they borrow is leaked: a test is short-lived.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use thicket_mqtt::{
    Acknowledgement, ApplicationProperties, ApplicationProperty, Auth, Connack, Connect,
    Disconnect, Login, Packet, PacketId, PacketKind, ProtocolVersion, Publish, Qos, ReasonCode,
    RetainHandling, Suback, Subscribe, SubscribeFilter, SubscriptionOptions, Unsuback, Unsubscribe,
    UserProperties, Will,
};

/// Any packet of a version, of any kind.
pub fn packet(version: ProtocolVersion) -> BoxedStrategy<Packet<'static>> {
    let before_5 = !version.has_properties();
    let common = prop_oneof![
        connect(version).prop_map(|connect| Packet::Connect(Box::new(connect))),
        connack(version).prop_map(|connack| Packet::Connack(Box::new(connack))),
        publish(version).prop_map(Packet::Publish),
        acknowledgement(version, PacketKind::Puback).prop_map(Packet::Puback),
        acknowledgement(version, PacketKind::Pubrec).prop_map(Packet::Pubrec),
        acknowledgement(version, PacketKind::Pubrel).prop_map(Packet::Pubrel),
        acknowledgement(version, PacketKind::Pubcomp).prop_map(Packet::Pubcomp),
        subscribe(version).prop_map(Packet::Subscribe),
        suback(version).prop_map(Packet::Suback),
        unsubscribe(version).prop_map(Packet::Unsubscribe),
        unsuback(version).prop_map(Packet::Unsuback),
        Just(Packet::Pingreq),
        Just(Packet::Pingresp),
    ];
    if before_5 {
        return prop_oneof![13 => common, 1 => Just(Packet::Disconnect(Disconnect::default()))]
            .boxed();
    }
    prop_oneof![
        13 => common,
        1 => disconnect().prop_map(Packet::Disconnect),
        1 => auth().prop_map(Packet::Auth),
    ]
    .boxed()
}

/// A string that the specification allows, mostly short.
fn text() -> impl Strategy<Value = &'static str> {
    let len = prop_oneof![8 => 0..12usize, 1 => 100..200usize];
    let char = prop_oneof![4 => prop::char::range('a', 'z'), 1 => prop::char::any()];
    len.prop_flat_map(move |len| vec(char.clone(), len))
        .prop_map(|chars| {
            let text: String = chars.into_iter().filter(|&char| char != '\0').collect();
            &*text.leak()
        })
}

/// What names something: without control characters.
fn name() -> impl Strategy<Value = &'static str> {
    text().prop_map(|text| &*text.replace(char::is_control, "").leak())
}

fn topic() -> impl Strategy<Value = &'static str> {
    name().prop_map(|name| match name.replace(['+', '#'], "/") {
        topic if topic.is_empty() => "t",
        topic => &*topic.leak(),
    })
}

/// Filters whose form others agree on.
fn filter() -> impl Strategy<Value = &'static str> {
    (topic(), select(vec!["", "/+", "/#", "/+/#"])).prop_map(|(topic, end)| {
        let filter = format!("{}{end}", topic.replace('$', "S"));
        &*filter.leak()
    })
}

fn binary() -> impl Strategy<Value = &'static [u8]> {
    vec(any::<u8>(), 0..40).prop_map(|bytes| &*bytes.leak())
}

fn user_properties(version: ProtocolVersion) -> impl Strategy<Value = UserProperties<'static>> {
    vec(
        (text(), text()),
        if version.has_properties() { 0..4 } else { 0..1 },
    )
}

/// A value in 5.0, `None` before.
fn only_5<T: Clone + std::fmt::Debug + 'static>(
    version: ProtocolVersion,
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    if version.has_properties() {
        of(value).boxed()
    } else {
        Just(None).boxed()
    }
}

fn packet_id() -> impl Strategy<Value = PacketId> {
    (1..=u16::MAX).prop_map(|value| PacketId::new(value).expect("from 1"))
}

fn qos() -> impl Strategy<Value = Qos> {
    select(vec![Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce])
}

fn reason_code(kind: PacketKind) -> impl Strategy<Value = ReasonCode> {
    let allowed = (0..=u8::MAX)
        .filter_map(|code| ReasonCode::try_from(code).ok())
        .filter(|code| code.is_allowed_in(kind))
        .collect::<Vec<_>>();
    select(allowed)
}

fn subscription_identifier() -> impl Strategy<Value = u32> {
    prop_oneof![1..200u32, 1..=268_435_455u32]
}

fn application_properties() -> impl Strategy<Value = ApplicationProperties<'static>> {
    let once = (of(0..=1u8), of(text()), of(topic()), of(binary()));
    (once, vec((text(), text()), 0..4)).prop_map(|((format, content, response, data), user)| {
        let list = format
            .map(ApplicationProperty::PayloadFormatIndicator)
            .into_iter()
            .chain(content.map(ApplicationProperty::ContentType))
            .chain(response.map(ApplicationProperty::ResponseTopic))
            .chain(data.map(ApplicationProperty::CorrelationData))
            .chain(
                user.into_iter()
                    .map(|(name, value)| ApplicationProperty::UserProperty(name, value)),
            );
        let bytes = ApplicationProperties::build(list).expect("short").leak();
        ApplicationProperties::from_encoded(bytes).expect("valid")
    })
}

fn will(version: ProtocolVersion) -> impl Strategy<Value = Will<'static>> {
    let of_5 = (any::<u32>(), of(any::<u32>()), application_properties());
    (topic(), binary(), qos(), any::<bool>(), of_5).prop_map(
        move |(topic, payload, qos, retain, (delay_interval, expiry, properties))| {
            let plain = Will {
                qos,
                retain,
                ..Will::new(topic, payload)
            };
            if !version.has_properties() {
                return plain;
            }
            Will {
                delay_interval,
                message_expiry_interval: expiry,
                properties,
                ..plain
            }
        },
    )
}

fn login(version: ProtocolVersion) -> impl Strategy<Value = Login<'static>> {
    (of(name()), of(binary())).prop_map(move |(user_name, password)| Login {
        user_name,
        password: password.filter(|_| user_name.is_some() || version.has_properties()),
    })
}

fn authentication(
    version: ProtocolVersion,
) -> BoxedStrategy<(Option<&'static str>, Option<&'static [u8]>)> {
    only_5(version, (text(), of(binary())))
        .prop_map(|both| both.map_or((None, None), |(method, data)| (Some(method), data)))
        .boxed()
}

fn connect(version: ProtocolVersion) -> impl Strategy<Value = Connect<'static>> {
    let plain = (
        any::<[bool; 2]>(),
        any::<u16>(),
        name(),
        of(will(version)),
        login(version),
    );
    let limits = (
        only_5(version, any::<u32>()),
        only_5(version, 1..=u16::MAX),
        only_5(version, 1..=u32::MAX),
        only_5(version, any::<u16>()),
        only_5(version, any::<[bool; 2]>()),
    );
    let rest = (authentication(version), user_properties(version));
    (plain, limits, rest).prop_map(move |(plain, limits, (authentication, user_properties))| {
        let [request_response_information, request_problem_information] =
            limits.4.unwrap_or([false, true]);
        Connect {
            version,
            bridge: plain.0[0] && !version.has_properties(),
            clean_start: plain.0[1],
            keep_alive: plain.1,
            client_id: plain.2,
            will: plain.3,
            login: plain.4,
            session_expiry_interval: limits.0,
            receive_maximum: limits.1,
            maximum_packet_size: limits.2,
            topic_alias_maximum: limits.3.unwrap_or(0),
            request_response_information,
            request_problem_information,
            authentication_method: authentication.0,
            authentication_data: authentication.1,
            user_properties,
        }
    })
}

fn connack(version: ProtocolVersion) -> BoxedStrategy<Connack<'static>> {
    if !version.has_properties() {
        return (0..=5u8, any::<bool>())
            .prop_map(move |(code, present)| Connack {
                session_present: present && code == 0 && version != ProtocolVersion::V31,
                reason_code: ReasonCode::from_connect_return_code(code).expect("up to 5"),
                ..Connack::default()
            })
            .boxed();
    }
    let code = (reason_code(PacketKind::Connack), any::<bool>());
    let limits = (
        of(any::<u32>()),
        of(1..=u16::MAX),
        of(select(vec![Qos::AtMostOnce, Qos::AtLeastOnce])),
        of(1..=u32::MAX),
        of(any::<u16>()),
        of(any::<u16>()),
    );
    let flags = (
        of(any::<bool>()),
        of(any::<bool>()),
        of(any::<bool>()),
        of(any::<bool>()),
    );
    let texts = (of(text()), of(text()), of(text()), of(text()));
    let rest = (authentication(version), user_properties(version));
    (code, limits, flags, texts, rest)
        .prop_map(
            |((reason_code, present), limits, flags, texts, (authentication, user))| Connack {
                session_present: present && reason_code == ReasonCode::Success,
                reason_code,
                session_expiry_interval: limits.0,
                receive_maximum: limits.1,
                maximum_qos: limits.2,
                maximum_packet_size: limits.3,
                topic_alias_maximum: limits.4,
                server_keep_alive: limits.5,
                retain_available: flags.0,
                wildcard_subscription_available: flags.1,
                subscription_identifiers_available: flags.2,
                shared_subscription_available: flags.3,
                assigned_client_identifier: texts.0,
                reason_string: texts.1,
                response_information: texts.2,
                server_reference: texts.3,
                authentication_method: authentication.0,
                authentication_data: authentication.1,
                user_properties: user,
            },
        )
        .boxed()
}

/// A PUBLISH of either direction.
pub fn publish(version: ProtocolVersion) -> impl Strategy<Value = Publish<'static>> {
    let flags = (any::<bool>(), qos(), any::<bool>(), packet_id());
    let of_5 = (
        of(1..=u16::MAX),
        of(any::<u32>()),
        vec(subscription_identifier(), 0..3),
        application_properties(),
        any::<bool>(),
    );
    (flags, topic(), binary(), of_5).prop_map(
        move |((dup, qos, retain, packet_id), topic, payload, of_5)| {
            let with_id = qos != Qos::AtMostOnce;
            let plain = Publish {
                dup: dup && with_id,
                qos,
                retain,
                packet_id: Some(packet_id).filter(|_| with_id),
                ..Publish::new(topic, payload)
            };
            if !version.has_properties() {
                return plain;
            }
            let (topic_alias, message_expiry_interval, identifiers, properties, alias_only) = of_5;
            Publish {
                topic: if alias_only && topic_alias.is_some() {
                    ""
                } else {
                    topic
                },
                topic_alias,
                message_expiry_interval,
                subscription_identifiers: (&*identifiers.leak()).into(),
                properties,
                ..plain
            }
        },
    )
}

fn acknowledgement(
    version: ProtocolVersion,
    kind: PacketKind,
) -> impl Strategy<Value = Acknowledgement<'static>> {
    let of_5 = (
        reason_code(kind),
        only_5(version, text()),
        user_properties(version),
    );
    (packet_id(), of_5).prop_map(
        move |(packet_id, (reason_code, reason_string, user_properties))| {
            let reason_code = if version.has_properties() {
                reason_code
            } else {
                ReasonCode::Success
            };
            Acknowledgement {
                packet_id,
                reason_code,
                reason_string,
                user_properties,
            }
        },
    )
}

fn options(version: ProtocolVersion) -> BoxedStrategy<SubscriptionOptions> {
    if !version.has_properties() {
        return qos()
            .prop_map(|qos| SubscriptionOptions {
                qos,
                ..SubscriptionOptions::default()
            })
            .boxed();
    }
    let handling = select(vec![
        RetainHandling::SendAtSubscribe,
        RetainHandling::SendIfNew,
        RetainHandling::DoNotSend,
    ]);
    (qos(), any::<[bool; 2]>(), handling)
        .prop_map(
            |(qos, [no_local, retain_as_published], retain_handling)| SubscriptionOptions {
                qos,
                no_local,
                retain_as_published,
                retain_handling,
            },
        )
        .boxed()
}

fn subscribe(version: ProtocolVersion) -> impl Strategy<Value = Subscribe<'static>> {
    let filters = (filter(), options(version))
        .prop_map(|(filter, options)| SubscribeFilter { filter, options });
    (
        packet_id(),
        only_5(version, subscription_identifier()),
        user_properties(version),
        vec(filters, 1..5),
    )
        .prop_map(
            |(packet_id, subscription_identifier, user_properties, filters)| Subscribe {
                packet_id,
                subscription_identifier,
                user_properties,
                filters,
            },
        )
}

fn suback(version: ProtocolVersion) -> impl Strategy<Value = Suback<'static>> {
    let codes = vec(reason_code(PacketKind::Suback), 1..6);
    (
        packet_id(),
        codes,
        only_5(version, text()),
        user_properties(version),
    )
        .prop_map(
            move |(packet_id, mut reason_codes, reason_string, user_properties)| {
                if !version.has_properties() {
                    for code in reason_codes.iter_mut().filter(|code| code.is_error()) {
                        *code = ReasonCode::UnspecifiedError;
                    }
                }
                Suback {
                    packet_id,
                    reason_codes,
                    reason_string,
                    user_properties,
                }
            },
        )
}

fn unsubscribe(version: ProtocolVersion) -> impl Strategy<Value = Unsubscribe<'static>> {
    (packet_id(), user_properties(version), vec(filter(), 1..5)).prop_map(
        |(packet_id, user_properties, filters)| Unsubscribe {
            packet_id,
            user_properties,
            filters,
        },
    )
}

fn unsuback(version: ProtocolVersion) -> impl Strategy<Value = Unsuback<'static>> {
    let codes = vec(reason_code(PacketKind::Unsuback), 1..6);
    (
        packet_id(),
        codes,
        only_5(version, text()),
        user_properties(version),
    )
        .prop_map(move |(packet_id, codes, reason_string, user_properties)| {
            let reason_codes = if version.has_properties() {
                codes
            } else {
                Vec::new()
            };
            Unsuback {
                packet_id,
                reason_codes,
                reason_string,
                user_properties,
            }
        })
}

fn disconnect() -> impl Strategy<Value = Disconnect<'static>> {
    let texts = (of(text()), of(text()), user_properties(ProtocolVersion::V5));
    (reason_code(PacketKind::Disconnect), of(any::<u32>()), texts).prop_map(
        |(reason_code, session_expiry_interval, (reason_string, server_reference, user))| {
            Disconnect {
                reason_code,
                session_expiry_interval,
                reason_string,
                server_reference,
                user_properties: user,
            }
        },
    )
}

fn auth() -> impl Strategy<Value = Auth<'static>> {
    let said = (
        of(binary()),
        of(text()),
        user_properties(ProtocolVersion::V5),
    );
    (reason_code(PacketKind::Auth), text(), said).prop_map(
        |(reason_code, method, (authentication_data, reason_string, user_properties))| Auth {
            reason_code,
            authentication_method: Some(method),
            authentication_data,
            reason_string,
            user_properties,
        },
    )
}
