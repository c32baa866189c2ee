//! Handles of an open file: small numbers for objects, the lowest free one first.

use std::collections::BTreeSet;

/// Objects by handle.
#[derive(Debug)]
pub struct Handles<T> {
    slots: Vec<Option<Entry<T>>>,
    free: BTreeSet<u32>,
    next_serial: u64,
}

/// An object and the order in which it came.
#[derive(Debug)]
struct Entry<T> {
    serial: u64,
    object: T,
}

impl<T> Handles<T> {
    /// None yet.
    pub fn new() -> Handles<T> {
        Handles { slots: Vec::new(), free: BTreeSet::new(), next_serial: 1 }
    }

    /// Stores an object.
    pub fn insert(&mut self, object: T) -> u32 {
        let entry = Some(Entry { serial: self.next_serial, object });
        self.next_serial += 1;
        if let Some(handle) = self.free.pop_first() {
            self.slots[handle as usize] = entry;
            return handle;
        }
        self.slots.push(entry);
        (self.slots.len() - 1) as u32
    }

    /// Takes an object out; its handle is free again.
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        let entry = self.slots.get_mut(handle as usize)?.take()?;
        self.free.insert(handle);
        Some(entry.object)
    }

    /// The object with that handle.
    pub fn get(&self, handle: u32) -> Option<&T> {
        Some(&self.slots.get(handle as usize)?.as_ref()?.object)
    }

    /// The object with that handle.
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        Some(&mut self.slots.get_mut(handle as usize)?.as_mut()?.object)
    }

    /// All handles, the youngest object first.
    pub fn youngest_first(&self) -> Vec<u32> {
        let mut order: Vec<(u64, u32)> = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(handle, slot)| Some((slot.as_ref()?.serial, handle as u32)))
            .collect();
        order.sort_unstable_by(|left, right| right.cmp(left));
        order.into_iter().map(|(_, handle)| handle).collect()
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|entry| &entry.object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_handle_comes_first() {
        let mut handles = Handles::new();
        assert_eq!([handles.insert('a'), handles.insert('b'), handles.insert('c')], [0, 1, 2]);
        assert_eq!(handles.remove(1), Some('b'));
        assert_eq!(handles.remove(0), Some('a'));
        assert_eq!(handles.remove(0), None);
        assert_eq!(handles.insert('d'), 0);
        assert_eq!(handles.get(0), Some(&'d'));
        assert_eq!(handles.get(7), None);
        assert_eq!(handles.youngest_first(), [0, 2]);
    }
}
