//! What acknowledgements wait for beside the destinations of their messages: backups that receive a message only through the stream.

use std::{cell::Cell, rc::Rc};

use crate::worker::{
    context::Context,
    state::{
        debts::Debt,
        outgoing::Outgoing,
        replica::stream::{Level, Release},
    },
};

/// Makes the acknowledgement of a message wait for the backups that receive it only through the stream: those of the chosen member of a shared
/// subscription, and learners of sessions without a complete backup. Returns the number of conditions.
#[inline]
pub(in super::super) fn wait_for_backups(
    cx: &mut Context,
    outgoing: &Outgoing<'_>,
    debt: Option<Debt>,
) -> u16 {
    match debt {
        Some(debt) if outgoing.waits_for > 0 || outgoing.unreplicated.is_some() => {
            wait_for_these_backups(cx, outgoing, debt)
        }
        Some(_) | None => 0,
    }
}

#[inline(never)]
fn wait_for_these_backups(cx: &mut Context, outgoing: &Outgoing<'_>, debt: Debt) -> u16 {
    if !cx.config.waits_for_backups {
        return 0;
    }
    let unreplicated = outgoing.unreplicated.as_deref();
    let unreplicated = unreplicated.map_or(&[][..], |it| &it.sessions);
    let (streams, sessions) = (outgoing.waits_for.count_ones(), unreplicated.len());
    let open = |count: u32| (count > 1).then(|| Rc::new(Cell::new(count)));
    // A publisher's acknowledgement counts what it waits for itself, and so do a will and a divided message.
    let (of_streams, of_sessions) = match debt {
        Debt::Sender { .. } => {
            let of_both = open(streams + sessions as u32);
            (of_both.clone(), of_both)
        }
        Debt::Publisher(_)
        | Debt::Will(_)
        | Debt::Merge(_)
        | Debt::TakenOver(..)
        | Debt::Portion(_) => (None, open(sessions as u32)),
    };
    for index in 0..u64::BITS as u8 {
        if outgoing.waits_for & (1 << index) != 0
            && let Some(stream) = cx.journal.streams.get_mut(index)
        {
            stream.wait(Level::Applied, Release::Debt((debt, of_streams.clone())));
        }
    }
    for session in unreplicated {
        cx.debts
            .wait_until_replicated(*session, (debt, of_sessions.clone()));
    }
    streams as u16 + u16::from(sessions > 0)
}

/// What waited until sessions are sent to other nodes waits for these nodes now, or no longer where there is none to wait for. Once a round.
pub(super) fn wait_for_synced(cx: &mut Context, is_syncing: bool) {
    let wanted = cx.wanted_backups();
    for ((key, serial), debts) in std::mem::take(&mut cx.debts.until_replicated) {
        let session = cx.sessions.get_same(key, serial);
        let waits = session.filter(|it| it.is_persistent() && it.role.handed().is_none());
        let stored = waits.map(|session| session.stored);
        let backups = stored.map(|stored| stored.backups).unwrap_or_default();
        let streams: Vec<u8> = backups.synced().map(|backup| backup.stream).collect();
        if !streams.is_empty() {
            for owed in debts {
                cx.wait_for_streams(&streams, owed);
            }
        } else if stored.is_some() && is_syncing && wanted > 0 && !cx.cluster.is_minority {
            cx.debts.until_replicated.insert((key, serial), debts);
        } else {
            for owed in debts {
                cx.debts.meet(owed);
            }
        }
    }
}
