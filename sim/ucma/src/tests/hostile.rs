//! Whatever is written: an errno, and nothing left behind.

use irdma_uverbs::{Errno, Transport};
use zerocopy::IntoBytes;

use super::bed::*;
use crate::abi::Header;
use crate::id::space;
use irdma_uverbs::program::Program;

#[test]
fn headers_are_looked_at_before_anything_else() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    let mut write = |node, address, length, header: Header| {
        bed.program.write(COMMAND, header.as_bytes()).unwrap();
        bed.manager.write(&mut bed.card, &bed.program, node, address, length).map_err(|Errno(errno)| errno)
    };
    let header = |cmd, input| Header { cmd, input, out: 0 };
    assert_eq!(write(node, COMMAND, 7, header(0, 0)), Err(libc::EINVAL));
    assert_eq!(write(node, 1, 8, header(0, 0)), Err(libc::EFAULT));
    assert_eq!(write(node, COMMAND, 8, header(23, 0)), Err(libc::EINVAL));
    assert_eq!(write(node, COMMAND, 8, header(u32::MAX, 0)), Err(libc::EINVAL));
    assert_eq!(write(node, COMMAND, 8, header(0, 1)), Err(libc::EINVAL));
    assert_eq!(write(node, COMMAND, 8, header(command::GET_OPTION, 0)), Err(libc::ENOSYS));
    assert_eq!(write(node + 1, COMMAND, 8, header(0, 0)), Err(libc::EBADF));
    assert_eq!(write(node, u64::MAX - 3, 8, header(0, 0)), Err(libc::EFAULT));
    assert_eq!(write(node, COMMAND, u64::MAX, header(command::GET_EVENT, 0)), Err(libc::ENOSPC));
}

#[test]
fn numbers_of_others_are_refused() {
    let mut bed = Bed::new(Transport::Roce);
    let (node, other) = (bed.node(), bed.node());
    let id = bed.create(node, space::TCP, 20);
    for (asking, number, errno) in
        [(other, id, libc::EINVAL), (node, id + 1, libc::ENOENT), (node, u32::MAX, libc::ENOENT)]
    {
        assert_eq!(bed.bind(asking, number, "127.0.0.1:8000"), Err(errno));
        assert_eq!(bed.listen(asking, number, 1), Err(errno));
        assert_eq!(bed.resolve(asking, number, "127.0.0.1:80"), Err(errno));
        assert_eq!(bed.route(asking, number), Err(errno));
        assert_eq!(bed.connect(asking, number, parameters(1, b"")), Err(errno));
        assert_eq!(bed.accept(asking, number, 1, parameters(1, b"")), Err(errno));
        assert_eq!(bed.reject(asking, number, b""), Err(errno));
        assert_eq!(bed.disconnect(asking, number), Err(errno));
        assert_eq!(bed.attributes(asking, number, 1).map(drop), Err(errno));
        assert_eq!(bed.option(asking, number, (0, 0), &[0]), Err(errno));
        assert_eq!(bed.destroy(asking, number), Err(errno));
    }
}

/// Numbers that are hard to foresee and always the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn no_sequence_of_commands_leaves_anything_behind() {
    for transport in [Transport::Roce, Transport::Iwarp] {
        let mut dice = Dice(7);
        let mut bed = Bed::new(transport);
        let mut nodes: Vec<u64> = (0..3).map(|_| bed.node()).collect();
        for node in &nodes {
            name(&mut bed, *node);
        }
        for step in 0..60_000 {
            let index = dice.roll(nodes.len() as u64) as usize;
            let node = nodes[index];
            random_command(&mut bed, &mut dice, node);
            if step % 64 == 0 {
                bed.manager.skip(std::time::Duration::from_millis(dice.roll(3000)));
                bed.manager.advance();
                bed.manager.lost(&mut bed.card, dice.roll(10) as u32);
            }
            if dice.roll(500) == 0 {
                bed.close(node);
                nodes[index] = bed.node();
                name(&mut bed, nodes[index]);
            }
        }
        for node in nodes {
            bed.close(node);
        }
        assert!(bed.manager.is_unused());
        assert_eq!(bed.manager.ids.iter().count(), 0);
        assert_eq!(bed.manager.memberships.iter().count(), 0);
        assert!(bed.card.connected.is_empty());
    }
}

fn name(bed: &mut Bed, node: u64) {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", bed.ends[&node].as_raw_fd());
    let name = std::fs::read_link(link).unwrap().into_os_string().into_string().unwrap();
    let number = bed.program.names.borrow().len() as i32 % 4;
    bed.program.names.borrow_mut().insert(number, name);
}

/// Mostly sensible bytes: a few numbers, addresses and ports, so that commands get somewhere.
fn random_command(bed: &mut Bed, dice: &mut Dice, node: u64) {
    let id = dice.roll(12) as u32;
    let host = ["127.0.0.1", "192.0.2.1", "0.0.0.0", "239.1.1.1", "203.0.113.1"][dice.roll(5) as usize];
    let address = format!("{host}:{}", 8000 + dice.roll(3));
    let space = [space::TCP, space::TCP, space::UDP, space::IB][dice.roll(4) as usize];
    // What comes out is looked at elsewhere; here it must come out.
    let _ = match dice.roll(16) {
        0 if bed.manager.ids.iter().count() < 12 => {
            bed.create(node, space, dice.roll(3));
            Ok(())
        }
        1 => bed.bind(node, id, &address),
        2 => bed.listen(node, id, dice.roll(3) as u32),
        3 | 4 => bed.resolve(node, id, &address),
        5 => bed.route(node, id),
        6 | 7 => bed.connect(node, id, parameters(dice.roll(10) as u32, &[1; 5])),
        8 | 9 => bed.accept(node, id, dice.roll(3), parameters(dice.roll(10) as u32, b"")),
        10 => bed.confirm(node, id),
        11 => bed.disconnect(node, id),
        12 => bed.event(node).map(drop).ok_or(0),
        13 if dice.roll(4) == 0 => bed.destroy(node, id).map(drop),
        14 => bed.reject(node, id, b"no"),
        _ => {
            let mut bytes = [0_u8; 400];
            bytes.iter_mut().for_each(|byte| *byte = [0, 0, 0, 1, 2, 10, 27, 255][dice.roll(8) as usize]);
            bytes[..4].copy_from_slice(&(dice.roll(24) as u32).to_ne_bytes());
            bytes[4..8].copy_from_slice(&[dice.roll(256) as u8, 1, dice.roll(256) as u8, 1]);
            bytes[8..16].copy_from_slice(&[ANSWER, 0, VALUE][dice.roll(3) as usize].to_ne_bytes());
            bed.program.write(COMMAND, &bytes).unwrap();
            let length = dice.roll(600);
            let room = bed.manager.ids.iter().count() < 12;
            if room || bytes[0] != 0 {
                let _ = bed.manager.write(&mut bed.card, &bed.program, node, COMMAND, length);
            }
            Ok(())
        }
    };
}
