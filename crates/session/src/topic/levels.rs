//! Texts of topic levels, each kept once and identified by a number.

use hashbrown::HashTable;

use crate::seeded_hash::SeededHash;

/// The number of a level's text, valid while a reference to it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelId(pub(super) u32);

#[derive(Debug, Default)]
struct LevelText {
    text: Box<str>,
    references: u32,
}

/// Interned levels, counted by reference: a text is removed with its last user, and its number is used again.
#[derive(Debug, Default)]
pub(super) struct LevelTable {
    texts: Vec<LevelText>,
    by_text: HashTable<LevelId>,
    vacant: Vec<LevelId>,
}

impl LevelTable {
    /// The number of `text` if it is in use.
    #[inline]
    pub(super) fn find(&self, hash: &SeededHash, text: &str) -> Option<LevelId> {
        self.by_text
            .find(hash.text(text), |id| {
                *self.texts[id.0 as usize].text == *text
            })
            .copied()
    }

    /// The number of `text`, with one more reference.
    pub(super) fn acquire(&mut self, hash: &SeededHash, text: &str) -> LevelId {
        if let Some(id) = self.find(hash, text) {
            self.texts[id.0 as usize].references += 1;
            return id;
        }
        let level = LevelText {
            text: text.into(),
            references: 1,
        };
        let id = match self.vacant.pop() {
            Some(id) => {
                self.texts[id.0 as usize] = level;
                id
            }
            None => {
                let next = u32::try_from(self.texts.len())
                    .expect("levels are fewer than bytes of memory allow");
                self.texts.push(level);
                LevelId(next)
            }
        };
        let texts = &self.texts;
        self.by_text.insert_unique(hash.text(text), id, |id| {
            hash.text(&texts[id.0 as usize].text)
        });
        id
    }

    /// Gives back one reference to `id`.
    pub(super) fn release(&mut self, hash: &SeededHash, id: LevelId) {
        let level = &mut self.texts[id.0 as usize];
        level.references -= 1;
        if level.references > 0 {
            return;
        }
        let text = std::mem::take(&mut level.text);
        if let Ok(entry) = self
            .by_text
            .find_entry(hash.text(&text), |other| *other == id)
        {
            entry.remove();
        }
        self.vacant.push(id);
        let texts = &self.texts;
        if self.by_text.capacity() > 64 && self.by_text.len() < self.by_text.capacity() / 8 {
            self.by_text.shrink_to(self.by_text.len() * 2, |id| {
                hash.text(&texts[id.0 as usize].text)
            });
        }
    }

    /// Texts in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_lives_as_long_as_its_last_user() {
        let hash = SeededHash::new(1);
        let mut levels = LevelTable::default();
        let temp = levels.acquire(&hash, "temp");
        assert_eq!(levels.acquire(&hash, "temp"), temp);
        let empty = levels.acquire(&hash, "");
        assert_ne!(empty, temp);

        levels.release(&hash, temp);
        assert_eq!(levels.find(&hash, "temp"), Some(temp));
        levels.release(&hash, temp);
        assert_eq!(levels.find(&hash, "temp"), None);
        assert_eq!(levels.len(), 1);
        assert_eq!(
            levels.acquire(&hash, "other"),
            temp,
            "the number is used again"
        );
    }

    #[test]
    fn the_table_shrinks_when_most_levels_are_gone() {
        let hash = SeededHash::new(2);
        let mut levels = LevelTable::default();
        let ids: Vec<_> = (0..1000)
            .map(|number| levels.acquire(&hash, &number.to_string()))
            .collect();
        let full = levels.by_text.capacity();
        for id in &ids[1..] {
            levels.release(&hash, *id);
        }
        assert!(levels.by_text.capacity() < full / 4);
        assert_eq!(levels.find(&hash, "0"), Some(ids[0]));
    }
}
