//! The objects that a context has handed out.
//!
//! A program holds them as plain pointers, and may close the device without having
//! destroyed them all (after a hot removal it cannot). The context owns them, gives
//! them up one by one as they are destroyed, and drops the rest when it is closed.
//!
//! At that time the kernel has freed its half already, and objects are dropped in any
//! order. So the drop of an object asks nothing of the kernel or of libibverbs'
//! context, and touches no other object: destroying is done by the verb.

use core::hash::{BuildHasherDefault, Hasher};
use core::ptr::NonNull;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::errno::{Errno, Result};

/// Drops the object at an address.
type Dropper = unsafe fn(NonNull<()>);

/// Every object alive, by address.
#[derive(Default)]
pub struct Objects(Mutex<HashMap<NonNull<()>, Dropper, BuildHasherDefault<AddressHasher>>>);

/// Hashes addresses of the heap. Nobody chooses them so that they collide, so it needs no secret, which
/// the kernel would have to be asked for.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(byte.into()));
    }

    fn write_usize(&mut self, address: usize) {
        // The golden ratio spreads what differs, in the middle of an address, over the upper bits; the map
        // looks at both ends.
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}

// SAFETY: objects are dropped by whoever closes the context, after which no thread may use it.
unsafe impl Send for Objects {}
// SAFETY: the map is under its mutex, the objects are not touched.
unsafe impl Sync for Objects {}

/// Drops an object that [`Objects::adopt`] took.
///
/// # Safety
/// `object` is a `T` that `adopt` took and nothing has taken back.
unsafe fn drop_as<T>(object: NonNull<()>) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(object.cast::<T>().as_ptr()) });
}

impl Objects {
    /// Takes an object; the pointer is good until it is [taken back](Objects::take_back)
    /// or the context is closed.
    pub fn adopt<T>(&self, object: Box<T>) -> Result<NonNull<T>> {
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        objects.try_reserve(1).map_err(|_| Errno::NO_MEMORY)?;
        let object = NonNull::from(Box::leak(object));
        objects.insert(object.cast(), drop_as::<T>);
        Ok(object)
    }

    /// Gives an object up.
    ///
    /// # Safety
    /// `object` is one that [`adopt`](Objects::adopt) returned and that has not been
    /// taken back.
    pub unsafe fn take_back<T>(&self, object: NonNull<T>) -> Box<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&object.cast());
        // SAFETY: as the caller promises, and now nobody else drops it.
        unsafe { Box::from_raw(object.as_ptr()) }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        for (object, dropper) in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain() {
            // SAFETY: taken by `adopt` with this dropper, and not given up since.
            unsafe { dropper(object) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn what_is_left_is_dropped_with_the_context() {
        let (destroyed, left) = (Rc::new(1), Rc::new(2));
        let objects = Objects::default();
        let first = objects.adopt(Box::new(Rc::clone(&destroyed))).unwrap();
        let second = objects.adopt(Box::new(Rc::clone(&left))).unwrap();
        // SAFETY: adopted above, once.
        drop(unsafe { objects.take_back(first) });
        assert_eq!((Rc::strong_count(&destroyed), Rc::strong_count(&left)), (1, 2));
        // SAFETY: adopted and not taken back.
        assert_eq!(**unsafe { second.as_ref() }, 2);
        drop(objects);
        assert_eq!(Rc::strong_count(&left), 1);
    }
}
