//! The bodies of an HTTP hook: the question who a client is, and the answer.

use serde::{Deserialize, Serialize};

use crate::rights::{Rule, RuleError};

/// The question, as JSON. What is absent is `null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Question<'a> {
    /// As in CONNECT, may be empty.
    pub client_id: &'a str,
    /// As in CONNECT.
    pub user_name: Option<&'a str>,
    /// As in CONNECT; bytes that are no UTF-8 are replaced.
    pub password: Option<&'a str>,
    /// ADDRESS:PORT of the client.
    pub peer: &'a str,
    /// Number of the listener it came through, from 0.
    pub listener: u16,
    /// The name in its verified certificate.
    pub certificate_name: Option<&'a str>,
}

/// What the answer decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Accepted. With rules, they are all that the client may do.
    Allow(Option<Vec<Rule>>),
    /// Refused.
    Deny,
    /// The hook does not know the client.
    Ignore,
}

/// Why an answer is invalid. The hook counts as failed.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// Malformed.
    #[error("expected JSON such as {{\"result\":\"allow\"}}: {0}")]
    Json(#[from] serde_json::Error),
    /// Malformed: what we do not understand must not be treated as nothing.
    #[error("acl: {0}")]
    Acl(#[from] RuleError),
}

#[derive(Deserialize)]
struct RawAnswer {
    result: RawResult,
    acl: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawResult {
    Allow,
    Deny,
    Ignore,
}

impl Answer {
    /// Parses `{"result":"allow|deny|ignore","acl":["read a/#", ...]}`; `acl` may be absent or `null`, other keys are ignored.
    ///
    /// # Errors
    /// It is no such JSON, or a rule is invalid.
    pub fn parse(body: &[u8]) -> Result<Self, AnswerError> {
        let raw: RawAnswer = serde_json::from_slice(body)?;
        let rules = raw
            .acl
            .map(|acl| acl.iter().map(|text| Rule::parse(text, true)).collect())
            .transpose()?;
        Ok(match raw.result {
            RawResult::Allow => Self::Allow(rules),
            RawResult::Deny => Self::Deny,
            RawResult::Ignore => Self::Ignore,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_of_three_words_perhaps_with_rules() {
        let rule = Rule::parse("read a/%u", true).expect("a rule");
        let cases = [
            (r#"{"result":"allow"}"#, Some(Answer::Allow(None))),
            (
                r#"{"result":"allow","acl":null,"more":1}"#,
                Some(Answer::Allow(None)),
            ),
            (
                r#"{"result":"allow","acl":[]}"#,
                Some(Answer::Allow(Some(vec![]))),
            ),
            (
                r#"{"result":"allow","acl":["read a/%u"]}"#,
                Some(Answer::Allow(Some(vec![rule]))),
            ),
            (r#"{"result":"deny"}"#, Some(Answer::Deny)),
            (r#"{"result":"ignore"}"#, Some(Answer::Ignore)),
            (r#"{"result":"maybe"}"#, None),
            (r#"{"result":"allow","acl":["read a/#/b"]}"#, None),
            (r#"{"result":"allow","acl":"read a"}"#, None),
            ("allow", None),
            ("", None),
        ];
        for (body, expected) in cases {
            assert_eq!(Answer::parse(body.as_bytes()).ok(), expected, "{body}");
        }
    }
}
