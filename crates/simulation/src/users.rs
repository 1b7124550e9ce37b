//! The authentication of users.

use std::sync::Arc;

use thicket_access::{Applicant, HashMemory, Judgement, Policy, scram};
use thicket_node::{Admission, Enhanced, Now, Verdict, WorkerOutput};

use crate::node::NodeSpec;

/// Answers an `Authenticate`. Without a policy, users named `good` are allowed and `bad` refused; other names get `Unavailable`, no name
/// `NotAuthorized`.
pub fn ask(spec: &NodeSpec, asked: &WorkerOutput, now: Now) -> Verdict {
    let WorkerOutput::Authenticate {
        client_id,
        user_name,
        password,
        enhanced,
        ..
    } = asked
    else {
        panic!("not a question about users: {asked:?}");
    };
    let Some(policy) = spec.policy.as_deref() else {
        return match user_name.as_deref() {
            Some("good") => Verdict::Allowed(Admission::default()),
            Some("bad") => Verdict::BadUserNameOrPassword,
            Some(_) => Verdict::Unavailable,
            None => Verdict::NotAuthorized,
        };
    };
    if let Some(enhanced) = enhanced {
        return step(policy, enhanced, client_id);
    }
    let renewed = spec.passwords.get(client_id).map(Vec::as_slice);
    let applicant = Applicant {
        listener: 0,
        client_id,
        user_name: user_name.as_deref(),
        password: renewed.or(password.as_deref()),
        certificate_name: None,
    };
    let now_s = now.wall.as_unix_millis() / 1000;
    let judgement = match policy.judge(&applicant, now_s, &mut HashMemory::default()) {
        Judgement::Unknown if user_name.is_none() => policy.grant_anonymous(0, client_id),
        judgement => judgement,
    };
    match judgement {
        Judgement::Granted(mut grant) => {
            if let Some(after_s) = spec.rights_end_after_s {
                Arc::make_mut(&mut grant).limit(now_s + after_s);
            }
            Verdict::Allowed(Admission {
                grant: Some(grant),
                authentication_data: None,
            })
        }
        Judgement::Refused(_) | Judgement::UnknownKey | Judgement::Unknown => {
            Verdict::BadUserNameOrPassword
        }
    }
}

fn step(policy: &Policy, enhanced: &Enhanced, client_id: &str) -> Verdict {
    if enhanced.method != scram::METHOD {
        return Verdict::BadAuthenticationMethod;
    }
    let data = &enhanced.data;
    let next = match enhanced.exchange.clone() {
        None => policy
            .start_scram(0, data, "server")
            .map(|(exchange, data)| Verdict::Continue {
                data,
                exchange: Box::new(exchange),
            }),
        Some(exchange) => {
            policy
                .finish_scram(0, *exchange, data, client_id)
                .map(|(grant, data)| {
                    Verdict::Allowed(Admission {
                        grant: Some(grant),
                        authentication_data: Some(data),
                    })
                })
        }
    };
    next.unwrap_or(Verdict::NotAuthorized)
}
