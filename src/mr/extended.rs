//! `ibv_reg_mr_ex`: a region of memory or of a dma-buf, told apart by what the program has filled in.
//!
//! From layout 64 on, libibverbs would do the same by itself; before, it has nothing in its place.

use rdma_core_sys::bindings::{
    IBV_REG_MR_MASK_ADDR, IBV_REG_MR_MASK_FD, IBV_REG_MR_MASK_FD_OFFSET, IBV_REG_MR_MASK_IOVA, ibv_mr,
    ibv_mr_init_attr, ibv_pd,
};

use crate::boundary;
use crate::errno::Errno;
use crate::log;

/// What memory a program means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its own, at the address.
    Memory,
    /// That of a dma-buf.
    DmaBuffer,
}

/// What the fields that are filled in say, or why they say nothing.
fn kind_of(mask: u64) -> Result<Kind, (Errno, &'static str)> {
    const MEMORY: u64 = IBV_REG_MR_MASK_ADDR as u64;
    const IOVA: u64 = IBV_REG_MR_MASK_IOVA as u64;
    const DMA_BUFFER: u64 = (IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET) as u64;
    match mask {
        _ if mask & !(MEMORY | IOVA | DMA_BUFFER) != 0 => {
            Err((Errno::NOT_SUPPORTED, "the device has neither DMA handles nor newer fields"))
        }
        _ if mask & !IOVA == MEMORY => Ok(Kind::Memory),
        _ if mask == IOVA | DMA_BUFFER => Ok(Kind::DmaBuffer),
        _ => Err((Errno::INVALID, "wanted is an address, or a dma-buf with offset and IOVA")),
    }
}

/// Registers by one of the two older verbs.
pub unsafe extern "C" fn reg_mr_ex(pd: *mut ibv_pd, attributes: *mut ibv_mr_init_attr) -> *mut ibv_mr {
    // SAFETY: libibverbs calls with a domain of ours and the program's attributes.
    let (attributes, context) = unsafe { (&*attributes, (*pd).context) };
    let mask = attributes.comp_mask;
    let (length, access) = (attributes.length, attributes.access);
    match kind_of(mask) {
        Ok(Kind::Memory) => {
            let given = mask & u64::from(IBV_REG_MR_MASK_IOVA) != 0;
            let device_address = if given { attributes.iova } else { attributes.addr.addr() as u64 };
            // SAFETY: as libibverbs promises of the older verb; the kernel checks the memory.
            unsafe { super::reg_mr(pd, attributes.addr, length, device_address, access) }
        }
        Ok(Kind::DmaBuffer) => {
            let (offset, device_address) = (attributes.fd_offset, attributes.iova);
            // SAFETY: as above.
            unsafe { super::reg_dmabuf_mr(pd, offset, length, device_address, attributes.fd, access) }
        }
        // SAFETY: the context is open.
        Err((errno, reason)) => unsafe {
            boundary::object(context, "reg_mr_ex", || {
                Err(log::refused(context, errno, format_args!("MR: comp_mask {mask:#x}: {reason}")))
            })
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_tells_memory_from_a_dma_buffer() {
        let [iova, address, descriptor, offset] = [1, 2, 4, 8];
        for mask in 0..=u64::from(u8::MAX) {
            let expected = match mask {
                _ if mask > 15 => Err(Errno::NOT_SUPPORTED),
                _ if mask == address || mask == address | iova => Ok(Kind::Memory),
                _ if mask == descriptor | offset | iova => Ok(Kind::DmaBuffer),
                _ => Err(Errno::INVALID),
            };
            assert_eq!(kind_of(mask).map_err(|(errno, _)| errno), expected, "{mask:#x}");
        }
        assert!(kind_of(1 << 63 | address).is_err());
    }
}
