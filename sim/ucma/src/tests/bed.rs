//! A connection manager with a made-up card and a program that is some memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use irdma_engine::MemoryFault;
use irdma_engine::spec::Gid;
use irdma_uverbs::program::Program;
use irdma_uverbs::{Errno, Token, Transport};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::abi::*;
use crate::address::Address;
use crate::card::{Card, End};
use crate::event::Kind;
use crate::id::space;
use crate::manager::Manager;

/// First address of the memory.
pub const BASE: u64 = 0x1000;
/// Where commands are.
pub const COMMAND: u64 = BASE;
/// Where answers go.
pub const ANSWER: u64 = BASE + 0x1000;
/// Where option values are.
pub const VALUE: u64 = BASE + 0x2000;
const SIZE: usize = 0x3000;

/// `RDMA_USER_CM_CMD_*`.
pub mod command {
    pub const CREATE: u32 = 0;
    pub const DESTROY: u32 = 1;
    pub const BIND_IP: u32 = 2;
    pub const RESOLVE_IP: u32 = 3;
    pub const RESOLVE_ROUTE: u32 = 4;
    pub const QUERY_ROUTE: u32 = 5;
    pub const CONNECT: u32 = 6;
    pub const LISTEN: u32 = 7;
    pub const ACCEPT: u32 = 8;
    pub const REJECT: u32 = 9;
    pub const DISCONNECT: u32 = 10;
    pub const INIT_QP_ATTR: u32 = 11;
    pub const GET_EVENT: u32 = 12;
    pub const GET_OPTION: u32 = 13;
    pub const SET_OPTION: u32 = 14;
    pub const NOTIFY: u32 = 15;
    pub const LEAVE: u32 = 17;
    pub const MIGRATE: u32 = 18;
    pub const QUERY: u32 = 19;
    pub const BIND: u32 = 20;
    pub const RESOLVE: u32 = 21;
    pub const JOIN: u32 = 22;
}

#[derive(Debug)]
pub struct Fake {
    pub bytes: RefCell<Vec<u8>>,
    pub names: RefCell<HashMap<i32, String>>,
}

impl Fake {
    fn range(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, MemoryFault> {
        let start = address.checked_sub(BASE).ok_or(MemoryFault)?;
        let start = usize::try_from(start).map_err(|_| MemoryFault)?;
        let end = start.checked_add(length).filter(|end| *end <= SIZE).ok_or(MemoryFault)?;
        Ok(start..end)
    }
}

impl Program for Fake {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        buffer.copy_from_slice(&self.bytes.borrow()[self.range(address, buffer.len())?]);
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let range = self.range(address, bytes.len())?;
        self.bytes.borrow_mut()[range].copy_from_slice(bytes);
        Ok(())
    }

    fn is_mapped(&self, address: u64, length: u64, _writable: bool) -> bool {
        usize::try_from(length).is_ok_and(|length| self.range(address, length).is_ok())
    }

    fn descriptor_name(&self, number: i32) -> Option<String> {
        self.names.borrow().get(&number).cloned()
    }

    fn may_send_raw(&self) -> bool {
        false
    }

    fn open_descriptor(&self, _number: i32) -> io::Result<File> {
        Err(io::Error::from_raw_os_error(libc::EBADF))
    }
}

/// A card with queue pairs 1 to 9.
#[derive(Debug)]
pub struct FakeCard {
    pub transport: Transport,
    pub gids: Vec<Gid>,
    pub connected: BTreeMap<u32, u32>,
    pub fails: bool,
    pub removed: bool,
}

pub const LINK_LOCAL: Gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0x01, 0, 0x01];
pub const IPV4: Gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];

impl Card for FakeCard {
    fn transport(&self) -> Transport {
        self.transport
    }

    fn is_present(&self) -> bool {
        !self.removed
    }

    fn gids(&self) -> &[Gid] {
        &self.gids
    }

    fn is_local(&self, host: IpAddr) -> bool {
        host.is_loopback() || self.gids.contains(&crate::address::gid_of(host))
    }

    fn has_queue_pair(&self, number: u32) -> bool {
        (1..10).contains(&number)
    }

    fn connect(&mut self, active: End, passive: End) -> Result<(), Errno> {
        if self.fails {
            return Err(Errno(libc::EINVAL));
        }
        self.connected.insert(active.queue_pair, passive.queue_pair);
        self.connected.insert(passive.queue_pair, active.queue_pair);
        Ok(())
    }

    fn disconnect(&mut self, queue_pair: u32) {
        self.connected.remove(&queue_pair);
    }
}

/// All of it.
pub struct Bed {
    pub manager: Manager,
    pub card: FakeCard,
    pub program: Fake,
    /// The programs' ends of the nodes.
    pub ends: BTreeMap<Token, OwnedFd>,
}

impl Bed {
    pub fn new(transport: Transport) -> Bed {
        let program = Fake { bytes: RefCell::new(vec![0; SIZE]), names: RefCell::default() };
        let gids = match transport {
            Transport::Roce => vec![LINK_LOCAL, IPV4],
            Transport::Iwarp => vec![irdma_uverbs::identity::IWARP],
        };
        let card = FakeCard { transport, gids, connected: BTreeMap::new(), fails: false, removed: false };
        Bed { manager: Manager::new(1, false), card, program, ends: BTreeMap::new() }
    }

    pub fn node(&mut self) -> Token {
        let (token, end) = self.manager.open().unwrap();
        self.ends.insert(token, end);
        token
    }

    /// A command with that struct, and room for an answer.
    pub fn run<T: IntoBytes + Immutable>(
        &mut self,
        node: Token,
        number: u32,
        body: &T,
        room: usize,
    ) -> Result<(), i32> {
        let header = Header { cmd: number, input: size_of::<T>() as u16, out: room as u16 };
        self.program.write(COMMAND, header.as_bytes()).unwrap();
        self.program.write(COMMAND + 8, body.as_bytes()).unwrap();
        let length = 8 + size_of::<T>() as u64;
        let taken = self.manager.write(&mut self.card, &self.program, node, COMMAND, length);
        taken.map(|taken| assert_eq!(taken, length)).map_err(|errno| errno.0)
    }

    /// The answer to the last command.
    pub fn answer<T: FromBytes + IntoBytes>(&self) -> T {
        let mut value = T::new_zeroed();
        self.program.read(ANSWER, value.as_mut_bytes()).unwrap();
        value
    }

    pub fn create(&mut self, node: Token, space: u16, user: u64) -> u32 {
        let body = CreateId { uid: user, response: ANSWER, ps: space, qp_type: 0, reserved: [0; 5] };
        self.run(node, command::CREATE, &body, 4).unwrap();
        self.answer::<NewId>().id
    }

    pub fn destroy(&mut self, node: Token, id: u32) -> Result<u32, i32> {
        let body = DestroyId { response: ANSWER, id, reserved: 0 };
        self.run(node, command::DESTROY, &body, 4)?;
        Ok(self.answer::<EventsReported>().events_reported)
    }

    pub fn bind(&mut self, node: Token, id: u32, address: &str) -> Result<(), i32> {
        let (addr, addr_size) = socket_address(address);
        self.run(node, command::BIND, &Bind { id, addr_size, reserved: 0, addr }, 0)
    }

    pub fn listen(&mut self, node: Token, id: u32, backlog: u32) -> Result<(), i32> {
        self.run(node, command::LISTEN, &Listen { id, backlog }, 0)
    }

    /// A listener on that address.
    pub fn listener(&mut self, node: Token, space: u16, user: u64, address: &str) -> u32 {
        let id = self.create(node, space, user);
        self.bind(node, id, address).unwrap();
        self.listen(node, id, 2).unwrap();
        id
    }

    pub fn resolve(&mut self, node: Token, id: u32, address: &str) -> Result<(), i32> {
        let (dst_addr, dst_size) = socket_address(address);
        let body = ResolveAddr {
            id,
            timeout_ms: 2000,
            src_size: 0,
            dst_size,
            reserved: 0,
            src_addr: [0; 128],
            dst_addr,
        };
        self.run(node, command::RESOLVE, &body, 0)
    }

    pub fn route(&mut self, node: Token, id: u32) -> Result<(), i32> {
        self.run(node, command::RESOLVE_ROUTE, &ResolveRoute { id, timeout_ms: 2000 }, 0)
    }

    /// An identifier that is ready to connect to that address.
    pub fn caller(&mut self, node: Token, space: u16, user: u64, address: &str) -> u32 {
        let id = self.create(node, space, user);
        self.resolve(node, id, address).unwrap();
        self.expect(node, Kind::AddressResolved, user, 0);
        self.route(node, id).unwrap();
        self.expect(node, Kind::RouteResolved, user, 0);
        id
    }

    pub fn connect(&mut self, node: Token, id: u32, conn_param: ConnParam) -> Result<(), i32> {
        let ece = Ece { vendor_id: 7, attr_mod: 9 };
        self.run(node, command::CONNECT, &Connect { conn_param, id, reserved: 0, ece }, 0)
    }

    pub fn accept(&mut self, node: Token, id: u32, user: u64, conn_param: ConnParam) -> Result<(), i32> {
        let ece = Ece::new_zeroed();
        self.run(node, command::ACCEPT, &Accept { uid: user, conn_param, id, reserved: 0, ece }, 0)
    }

    /// The confirmation of a reply.
    pub fn confirm(&mut self, node: Token, id: u32) -> Result<(), i32> {
        self.accept(node, id, 0, ConnParam::new_zeroed())
    }

    pub fn reject(&mut self, node: Token, id: u32, said: &[u8]) -> Result<(), i32> {
        let mut body = Reject { id, private_data_len: said.len() as u8, ..Reject::new_zeroed() };
        body.private_data[..said.len()].copy_from_slice(said);
        self.run(node, command::REJECT, &body, 0)
    }

    pub fn disconnect(&mut self, node: Token, id: u32) -> Result<(), i32> {
        self.run(node, command::DISCONNECT, &Disconnect { id }, 0)
    }

    pub fn attributes(&mut self, node: Token, id: u32, state: u32) -> Result<QpAttr, i32> {
        let body = InitQpAttr { response: ANSWER, id, qp_state: state };
        self.run(node, command::INIT_QP_ATTR, &body, size_of::<QpAttr>())?;
        Ok(self.answer())
    }

    pub fn option(&mut self, node: Token, id: u32, place: (u32, u32), value: &[u8]) -> Result<(), i32> {
        self.program.write(VALUE, value).unwrap();
        let (level, optname) = place;
        let body = SetOption { optval: VALUE, id, level, optname, optlen: value.len() as u32 };
        self.run(node, command::SET_OPTION, &body, 0)
    }

    /// The next event, if there is one.
    pub fn event(&mut self, node: Token) -> Option<EventResp> {
        let body = GetEvent { response: ANSWER };
        match self.run(node, command::GET_EVENT, &body, size_of::<EventResp>()) {
            Ok(()) => Some(self.answer()),
            Err(errno) => {
                assert_eq!(errno, libc::EAGAIN);
                None
            }
        }
    }

    /// The next event, which must be that one.
    #[track_caller]
    pub fn expect(&mut self, node: Token, kind: Kind, user: u64, status: i32) -> EventResp {
        let event = self.event(node).expect("an event");
        assert_eq!((event.event, event.uid, event.status), (kind as u32, user, status));
        event
    }

    /// Connects: the number of the new identifier on the listening side.
    pub fn request(&mut self, node: Token, id: u32, listener: (Token, u64), said: &[u8]) -> u32 {
        self.connect(node, id, parameters(1, said)).unwrap();
        self.expect(listener.0, Kind::ConnectRequest, listener.1, 0).id
    }

    /// A connection over RoCE of a new identifier with what listens at that address. Both numbers.
    pub fn established(&mut self, node: Token, listener: (Token, u64), address: &str) -> (u32, u32) {
        let caller = self.caller(node, space::TCP, 50, address);
        let called = self.request(node, caller, listener, b"");
        self.accept(listener.0, called, 60, parameters(2, b"")).unwrap();
        self.expect(node, Kind::ConnectResponse, 50, 0);
        self.confirm(node, caller).unwrap();
        self.expect(listener.0, Kind::Established, 60, 0);
        (caller, called)
    }

    /// Lets a program close its node.
    pub fn close(&mut self, node: Token) {
        self.ends.remove(&node);
        self.manager.reap(&mut self.card);
    }
}

/// Parameters of a connection of that queue pair.
pub fn parameters(queue_pair: u32, said: &[u8]) -> ConnParam {
    let mut parameters = ConnParam {
        qp_num: queue_pair,
        private_data_len: said.len() as u8,
        responder_resources: 3,
        initiator_depth: 5,
        flow_control: 1,
        retry_count: 6,
        rnr_retry_count: 9,
        valid: 1,
        ..ConnParam::new_zeroed()
    };
    parameters.private_data[..said.len()].copy_from_slice(said);
    parameters
}

/// The parameters of a connection in an event.
pub fn connection(event: &EventResp) -> ConnParam {
    ConnParam::read_from_prefix(event.param.as_bytes()).unwrap().0
}

pub fn socket_address(text: &str) -> (AnyAddress, u16) {
    let socket: std::net::SocketAddr = text.parse().unwrap();
    let address = Address::from_ip(socket.ip(), socket.port());
    let mut bytes = [0; 128];
    address.store(&mut bytes);
    (bytes, address.size() as u16)
}
