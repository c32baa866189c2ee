//! Objects by number: the lowest free one comes first, as the kernel's allocator gives them out.

/// Objects by number.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Option<T>>,
    most: usize,
}

impl<T> Table<T> {
    /// None yet, and never more than `most`.
    pub fn new(most: usize) -> Table<T> {
        Table { slots: Vec::new(), most }
    }

    /// Takes an object in; `None` if there are too many.
    pub fn insert(&mut self, object: T) -> Option<u32> {
        let free = self.slots.iter().position(Option::is_none);
        let number = free.unwrap_or(self.slots.len());
        if number >= self.most {
            return None;
        }
        match free {
            Some(free) => self.slots[free] = Some(object),
            None => self.slots.push(Some(object)),
        }
        Some(number as u32)
    }

    /// Gives an object back.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        self.slots.get_mut(number as usize)?.take()
    }

    /// The object with that number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number as usize)?.as_ref()
    }

    /// The object with that number, to change it.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    /// All of them, the lowest number first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(number, slot)| Some((number as u32, slot.as_ref()?)))
    }

    /// Numbers of those that `wanted` picks.
    pub fn numbers(&self, wanted: impl Fn(&T) -> bool) -> Vec<u32> {
        self.iter().filter(|(_, object)| wanted(object)).map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_comes_first_and_there_is_an_end() {
        let mut table = Table::new(3);
        assert_eq!([table.insert('a'), table.insert('b'), table.insert('c')], [Some(0), Some(1), Some(2)]);
        assert_eq!(table.insert('d'), None);
        assert_eq!(table.remove(1), Some('b'));
        assert_eq!(table.remove(1), None);
        assert_eq!(table.insert('e'), Some(1));
        assert_eq!(table.numbers(|object| *object != 'e'), [0, 2]);
        assert_eq!(table.get(7), None);
    }
}
