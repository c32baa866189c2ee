//! A command on its way through a handler (kernel: `ucma_write`).

use irdma_engine::spec::Gid;
use irdma_uverbs::program::Program;
use irdma_uverbs::{Errno, Token};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::Header;
use crate::card::Card;
use crate::commands::{addresses, connections, life, multicast, options, queries};
use crate::id::{Id, State};
use crate::manager::Manager;

/// What a command gives.
pub type Result<T> = core::result::Result<T, Errno>;

/// `EINVAL`.
pub const EINVAL: Errno = Errno(libc::EINVAL);
/// `ENOENT`.
pub const ENOENT: Errno = Errno(libc::ENOENT);
/// `ENOSYS`.
pub const ENOSYS: Errno = Errno(libc::ENOSYS);
/// `ENOSPC`: no room for the answer.
pub const ENOSPC: Errno = Errno(libc::ENOSPC);
/// `ENOMEM`.
pub const ENOMEM: Errno = Errno(libc::ENOMEM);
/// `EFAULT`.
pub const EFAULT: Errno = Errno(libc::EFAULT);

/// A command being served.
pub struct Call<'a> {
    /// The connection manager.
    pub manager: &'a mut Manager,
    /// The card.
    pub card: &'a mut dyn Card,
    /// Who asks.
    pub program: &'a dyn Program,
    /// On which node.
    pub node: Token,
    /// `RDMA_USER_CM_CMD_*`.
    command: u32,
    /// Where the command's struct is.
    input: u64,
    /// Bytes of it, as the program says; most commands do not care.
    pub input_length: usize,
    /// Room for the answer.
    pub room: usize,
}

impl<'a> Call<'a> {
    /// Looks at the header of a write.
    pub fn decode(
        manager: &'a mut Manager,
        card: &'a mut dyn Card,
        program: &'a dyn Program,
        node: Token,
        address: u64,
        length: u64,
    ) -> Result<Call<'a>> {
        let size = size_of::<Header>() as u64;
        if length < size {
            return Err(EINVAL);
        }
        let header: Header = read(program, address)?;
        if header.cmd >= COMMANDS.len() as u32 || u64::from(header.input) + size > length {
            return Err(EINVAL);
        }
        Ok(Call {
            manager,
            card,
            program,
            node,
            command: header.cmd,
            input: address.wrapping_add(size),
            input_length: header.input.into(),
            room: header.out.into(),
        })
    }

    /// The command's struct. As in the kernel, all of it must be readable, however short the write.
    pub fn request<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        read(self.program, self.input)
    }

    /// As [`Call::request`], of a command that may be shorter: what is missing is zero.
    pub fn short_request<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        let mut value = T::new_zeroed();
        let bytes = value.as_mut_bytes();
        let length = bytes.len().min(self.input_length);
        self.program.read(self.input, &mut bytes[..length]).map_err(|_| EFAULT)?;
        Ok(value)
    }

    /// Stores an answer, as much of it as there is room for.
    pub fn answer<T: IntoBytes + Immutable>(&self, address: u64, answer: &T) -> Result<()> {
        let bytes = answer.as_bytes();
        self.store(address, &bytes[..bytes.len().min(self.room)])
    }

    /// Stores bytes in the program.
    pub fn store(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.program.write(address, bytes).map_err(|_| EFAULT)
    }

    /// Refuses an answer that has less room.
    pub fn need_room(&self, bytes: usize) -> Result<()> {
        if self.room < bytes { Err(ENOSPC) } else { Ok(()) }
    }

    /// An identifier of this node: `ENOENT` if there is none, `EINVAL` if it is another node's,
    /// `ENXIO` if its card was taken out.
    pub fn id(&mut self, number: u32) -> Result<&mut Id> {
        let node = self.node;
        let id = self.any_id(number)?;
        if id.node != node {
            return Err(EINVAL);
        }
        if id.state == State::Removed {
            return Err(Errno(libc::ENXIO));
        }
        Ok(id)
    }

    /// An identifier, whosever.
    fn any_id(&mut self, number: u32) -> Result<&mut Id> {
        self.manager.ids.get_mut(number).ok_or(ENOENT)
    }

    /// GIDs of both ends of an identifier: its own, and the other.
    pub fn ends(&mut self, number: u32) -> Result<(Gid, Gid)> {
        self.id(number)?;
        let id = self.manager.ids.get(number).ok_or(ENOENT)?;
        Ok(addresses::ends(self.card, id))
    }

    /// An identifier that a card has been chosen for; else `EINVAL`.
    pub fn attached_id(&mut self, number: u32) -> Result<&mut Id> {
        let id = self.id(number)?;
        if id.attached { Ok(id) } else { Err(EINVAL) }
    }
}

fn read<T: FromBytes + IntoBytes>(program: &dyn Program, address: u64) -> Result<T> {
    let mut value = T::new_zeroed();
    program.read(address, value.as_mut_bytes()).map_err(|_| EFAULT)?;
    Ok(value)
}

/// A command's handler.
type Handler = fn(&mut Call) -> Result<()>;

/// `RDMA_USER_CM_CMD_*`, from 0 on; those that the kernel no longer has are `ENOSYS`.
const COMMANDS: [Option<Handler>; 23] = [
    Some(life::create),
    Some(life::destroy),
    Some(addresses::bind_ip),
    Some(addresses::resolve_ip),
    Some(addresses::resolve_route),
    Some(queries::route),
    Some(connections::connect),
    Some(addresses::listen),
    Some(connections::accept),
    Some(connections::reject),
    Some(connections::disconnect),
    Some(queries::queue_pair),
    Some(life::get_event),
    None,
    Some(options::set),
    Some(connections::notify),
    Some(multicast::join_ip),
    Some(multicast::leave),
    Some(life::migrate),
    Some(queries::query),
    Some(addresses::bind),
    Some(addresses::resolve),
    Some(multicast::join),
];

/// Serves a command.
pub fn run(call: &mut Call) -> Result<()> {
    let handler = COMMANDS.get(call.command as usize).copied().flatten().ok_or(ENOSYS)?;
    handler(call)
}
