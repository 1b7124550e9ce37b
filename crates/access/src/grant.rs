//! Who a client is and what it may do, and whether that still holds after a reload.

use std::sync::Arc;

use crate::{
    acl::Acl,
    hash::HashMemory,
    rights::{Client, Rights, Rule},
    scram::{ScramError, ServerExchange},
    token::{Claims, LEEWAY_S, TokenError, Tokens},
    users::{Login, Users},
    verified::Verified,
};

/// What a client was granted at its CONNECT. Immutable; shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// `None`: anonymous.
    pub user_name: Option<Box<str>>,
    /// The client that has these rights, also for the further sessions it was placed with.
    client_id: Box<str>,
    /// `None`: everything.
    pub rights: Option<Arc<Rights>>,
    /// When it ends, in seconds since the epoch, a token's leeway included; `None`: never.
    pub expires_at_s: Option<u64>,
    source: Source,
}

impl Grant {
    /// It ends at this time at the latest, in seconds since the epoch.
    pub fn limit(&mut self, at_s: u64) {
        self.expires_at_s = Some(self.expires_at_s.map_or(at_s, |own_s| own_s.min(at_s)));
    }
}

/// How a client was authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// It was not.
    Anonymous { listener: u16 },
    /// Its certificate.
    Certificate { listener: u16 },
    /// By the file of users of a listener, with the entry at that time.
    User { listener: u16, fingerprint: u64 },
    /// By a token, of a key. `has_rules`: the token itself contains what its bearer may do.
    Token { fingerprint: u64, has_rules: bool },
    /// By another authority that was asked.
    Hook { has_rules: bool },
}

/// What becomes of a grant when the files are read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Review {
    /// As it was.
    Same,
    /// The client may stay, with these rights.
    Changed(Arc<Grant>),
    /// It may not: its user, its password or the key of its token is gone.
    Ended,
}

/// A client that asks to connect.
#[derive(Debug, Clone, Copy)]
pub struct Applicant<'a> {
    /// Number of the listener it came through.
    pub listener: u16,
    /// As in CONNECT, may be empty.
    pub client_id: &'a str,
    /// As in CONNECT.
    pub user_name: Option<&'a str>,
    /// As in CONNECT.
    pub password: Option<&'a [u8]>,
    /// The name in its verified certificate.
    pub certificate_name: Option<&'a str>,
}

/// What the files contain about a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Accepted.
    Granted(Arc<Grant>),
    /// Known, and refused; why, for the log.
    Refused(String),
    /// Its token is of a key that the provider may list by now.
    UnknownKey,
    /// Not known here.
    Unknown,
}

/// Everything that decides without asking another authority: certificates, tokens, users and the ACL, in this order.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The file of users.
    pub users: Option<Users>,
    /// What they may do; `None`: everything.
    pub acl: Option<Acl>,
    /// Tokens that are accepted as passwords.
    pub tokens: Option<Tokens>,
    /// Whether the name in a verified certificate is a user name that needs no password, where a listener does not say otherwise.
    pub trusts_certificates: bool,
    /// Whether an unknown client without a user name is accepted.
    pub allows_anonymous: bool,
    /// Settings of a listener, by its number. For those not listed the settings above apply.
    pub listeners: Vec<ListenerPolicy>,
}

/// Settings of a listener.
#[derive(Debug, Clone, Default)]
pub struct ListenerPolicy {
    /// Its own users; `None`: those of all.
    pub users: Option<Users>,
    /// `None`: as everywhere.
    pub allows_anonymous: Option<bool>,
    /// `None`: as everywhere.
    pub trusts_certificates: Option<bool>,
}

impl Policy {
    fn own_at<T>(&self, listener: u16, pick: impl Fn(&ListenerPolicy) -> Option<T>) -> Option<T> {
        self.listeners.get(usize::from(listener)).and_then(pick)
    }

    fn users_at(&self, listener: u16) -> Option<&Users> {
        self.listeners
            .get(usize::from(listener))
            .and_then(|own| own.users.as_ref())
            .or(self.users.as_ref())
    }

    /// Whether the name in a verified certificate is a user name at a listener.
    fn trusts_certificates_at(&self, listener: u16) -> bool {
        self.own_at(listener, |own| own.trusts_certificates)
            .unwrap_or(self.trusts_certificates)
    }

    /// Whether an unknown client without a user name is accepted at a listener.
    #[must_use]
    pub fn allows_anonymous_at(&self, listener: u16) -> bool {
        self.own_at(listener, |own| own.allows_anonymous)
            .unwrap_or(self.allows_anonymous)
    }

    /// Whether every client is accepted at a listener with all rights, so that a client without user name need not be authenticated.
    #[must_use]
    pub fn is_open_at(&self, listener: u16) -> bool {
        self.allows_anonymous_at(listener) && self.acl.is_none() && !self.knows_users_at(listener)
    }

    /// Whether a user name means anything at a listener. Where it does not, it is ignored: a client that gives one is anonymous.
    #[must_use]
    pub fn knows_users_at(&self, listener: u16) -> bool {
        self.users_at(listener).is_some()
            || self.tokens.is_some()
            || self.trusts_certificates_at(listener)
    }

    /// Whether an answer needs a slow hash or a signature, so that it must not be computed on a worker's thread.
    #[must_use]
    pub fn is_slow(&self, applicant: &Applicant<'_>) -> bool {
        (self.users_at(applicant.listener).is_some() && applicant.user_name.is_some())
            || (self.tokens.is_some() && applicant.password.is_some())
    }

    /// The verdict of certificate, token or users' file, in this order; the first that knows the applicant decides. `now_s`: seconds since the epoch.
    /// `memory`: that of the thread, used where [`Policy::is_slow`].
    #[must_use]
    pub fn judge(
        &self,
        applicant: &Applicant<'_>,
        now_s: u64,
        memory: &mut HashMemory,
    ) -> Judgement {
        if let Some(name) = applicant.certificate_name
            && self.trusts_certificates_at(applicant.listener)
        {
            let source = Source::Certificate {
                listener: applicant.listener,
            };
            return self.granted(Some(name), applicant.client_id, source);
        }
        let password = applicant.password.unwrap_or_default();
        if let Some(tokens) = &self.tokens
            && Tokens::looks_like(password)
        {
            return match tokens.verify(password, now_s) {
                Ok(claims) => self.judge_claims(applicant, claims),
                Err(TokenError::UnknownKey) => Judgement::UnknownKey,
                Err(error) => Judgement::Refused(error.to_string()),
            };
        }
        let Some((users, name)) = self.user_of(applicant) else {
            return Judgement::Unknown;
        };
        match users.verify(name, password, memory) {
            Login::Good => self.grant_user(applicant.listener, name, applicant.client_id),
            Login::Wrong => Judgement::Refused("wrong password".into()),
            Login::Unknown => Judgement::Unknown,
        }
    }

    /// The file of users that decides about the applicant by its password, and the name to look for; `None`: none does.
    fn user_of<'a>(&'a self, applicant: &Applicant<'a>) -> Option<(&'a Users, &'a str)> {
        let by_certificate =
            applicant.certificate_name.is_some() && self.trusts_certificates_at(applicant.listener);
        let password = applicant.password.unwrap_or_default();
        let by_token = self.tokens.is_some() && Tokens::looks_like(password);
        (self.users_at(applicant.listener).zip(applicant.user_name))
            .filter(|_| !by_certificate && !by_token)
    }

    /// The grant of a user of the file whose password was correct before. Quick. `None`: it is to be judged.
    #[must_use]
    pub fn recall(&self, applicant: &Applicant<'_>, verified: &mut Verified) -> Option<Arc<Grant>> {
        let (users, name) = self.user_of(applicant)?;
        let password = applicant.password.unwrap_or_default();
        if !verified.recall(name, users.stored(name), password) {
            return None;
        }
        match self.grant_user(applicant.listener, name, applicant.client_id) {
            Judgement::Granted(grant) => Some(grant),
            Judgement::Refused(_) | Judgement::UnknownKey | Judgement::Unknown => None,
        }
    }

    /// Remembers the password of an applicant that was granted, if the file of users decided.
    pub fn remember(&self, applicant: &Applicant<'_>, verified: &mut Verified) {
        if let Some((users, name)) = self.user_of(applicant)
            && let Some(stored) = users.stored(name)
        {
            verified.remember(name, stored, applicant.password.unwrap_or_default());
        }
    }

    /// Forgets passwords that are no longer those of the files.
    pub fn forget_changed(&self, verified: &mut Verified) {
        let own = self.listeners.iter().filter_map(|own| own.users.as_ref());
        let all: Vec<_> = self.users.iter().chain(own).collect();
        verified.retain(|name, stored| all.iter().any(|it| it.stored(name) == Some(stored)));
    }

    /// The grant of a user of the file that has proved its identity, by password or otherwise.
    #[must_use]
    pub fn grant_user(&self, listener: u16, name: &str, client_id: &str) -> Judgement {
        let users = self.users_at(listener);
        let Some(fingerprint) = users.and_then(|users| users.fingerprint(name)) else {
            return Judgement::Unknown;
        };
        let source = Source::User {
            listener,
            fingerprint,
        };
        self.granted(Some(name), client_id, source)
    }

    /// Whether any user at a listener can use enhanced authentication with [`crate::scram::METHOD`].
    #[must_use]
    pub fn knows_scram_at(&self, listener: u16) -> bool {
        self.users_at(listener).is_some_and(Users::has_scram)
    }

    /// The first step of enhanced authentication with [`crate::scram::METHOD`]. Returns the answer. `nonce`: printable, without comma, fresh and
    /// random.
    ///
    /// # Errors
    /// The message is malformed, or there is no file of users.
    pub fn start_scram(
        &self,
        listener: u16,
        data: &[u8],
        nonce: &str,
    ) -> Result<(ServerExchange, Vec<u8>), ScramError> {
        let users = self.users_at(listener).ok_or(ScramError::Refused)?;
        ServerExchange::start(users, data, nonce)
    }

    /// The second and last step. Returns the grant, and what to send along with it.
    ///
    /// # Errors
    /// The message is malformed, the password wrong, or the user unknown.
    pub fn finish_scram(
        &self,
        listener: u16,
        exchange: ServerExchange,
        data: &[u8],
        client_id: &str,
    ) -> Result<(Arc<Grant>, Vec<u8>), ScramError> {
        let (name, answer) = exchange.finish(data)?;
        match self.grant_user(listener, &name, client_id) {
            Judgement::Granted(grant) => Ok((grant, answer)),
            // Gone since the first step.
            Judgement::Refused(_) | Judgement::UnknownKey | Judgement::Unknown => {
                Err(ScramError::Refused)
            }
        }
    }

    /// The grant of an unknown client, if it is accepted at all.
    #[must_use]
    pub fn grant_anonymous(&self, listener: u16, client_id: &str) -> Judgement {
        if self.allows_anonymous_at(listener) {
            self.granted(None, client_id, Source::Anonymous { listener })
        } else {
            Judgement::Unknown
        }
    }

    /// The grant of a client that another authority vouches for; `rules`: all that it may do, instead of the ACL.
    #[must_use]
    pub fn grant_for_hook(
        &self,
        user_name: Option<&str>,
        client_id: &str,
        rules: Option<&[Rule]>,
    ) -> Grant {
        let source = Source::Hook {
            has_rules: rules.is_some(),
        };
        let mut grant = self.grant(user_name, client_id, source);
        if let Some(rules) = rules {
            grant.rights = Some(bind(rules, user_name, client_id));
        }
        grant
    }

    fn judge_claims(&self, applicant: &Applicant<'_>, claims: Claims) -> Judgement {
        let name = claims.user_name.as_str();
        if applicant.user_name.is_some_and(|asked| asked != name) {
            return Judgement::Refused("the token is of another user".into());
        }
        if claims
            .client_id
            .is_some_and(|only| only != applicant.client_id)
        {
            return Judgement::Refused("the token is for another client".into());
        }
        let source = Source::Token {
            fingerprint: claims.key,
            has_rules: claims.rules.is_some(),
        };
        let mut grant = self.grant(Some(name), applicant.client_id, source);
        grant.expires_at_s = (claims.expires_at_s).map(|at_s| at_s.saturating_add(LEEWAY_S));
        if let Some(rules) = &claims.rules {
            grant.rights = Some(bind(rules, Some(name), applicant.client_id));
        }
        Judgement::Granted(Arc::new(grant))
    }

    fn granted(&self, user_name: Option<&str>, client_id: &str, source: Source) -> Judgement {
        Judgement::Granted(Arc::new(self.grant(user_name, client_id, source)))
    }

    fn grant(&self, user_name: Option<&str>, client_id: &str, source: Source) -> Grant {
        let client = Client {
            user_name,
            client_id,
        };
        Grant {
            client_id: client_id.into(),
            user_name: user_name.map(Into::into),
            rights: self.acl.as_ref().map(|acl| Arc::new(acl.rights(client))),
            expires_at_s: None,
            source,
        }
    }

    /// Whether a grant of an earlier policy still holds under this one. Rights from a token or a hook stay as they were; those of the ACL are looked
    /// up again.
    #[must_use]
    pub fn review(&self, grant: &Grant) -> Review {
        let stays = match grant.source {
            Source::Anonymous { listener } => self.allows_anonymous_at(listener),
            Source::Certificate { listener } => self.trusts_certificates_at(listener),
            Source::User {
                listener,
                fingerprint,
            } => {
                let users = self.users_at(listener).zip(grant.user_name.as_deref());
                users.and_then(|(users, name)| users.fingerprint(name)) == Some(fingerprint)
            }
            Source::Token { fingerprint, .. } => {
                let keys = self.tokens.as_ref().map(Tokens::keys);
                keys.is_some_and(|keys| keys.has(fingerprint))
            }
            Source::Hook { .. } => true,
        };
        let has_rules = match grant.source {
            Source::Token { has_rules, .. } | Source::Hook { has_rules } => has_rules,
            Source::Anonymous { .. } | Source::Certificate { .. } | Source::User { .. } => false,
        };
        if !stays {
            return Review::Ended;
        }
        if has_rules {
            return Review::Same;
        }
        let renewed = Grant {
            expires_at_s: grant.expires_at_s,
            ..self.grant(grant.user_name.as_deref(), &grant.client_id, grant.source)
        };
        if renewed == *grant {
            Review::Same
        } else {
            Review::Changed(Arc::new(renewed))
        }
    }
}

fn bind(rules: &[Rule], user_name: Option<&str>, client_id: &str) -> Arc<Rights> {
    let client = Client {
        user_name,
        client_id,
    };
    Arc::new(Rights::bind(rules, client))
}

#[cfg(test)]
mod tests;
