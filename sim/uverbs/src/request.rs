//! Decoding of the uverbs ioctl: header, attributes, and the checks that the kernel makes before any method runs.

use std::rc::Rc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::number::{self, DRIVER_IN, DRIVER_OUT, FLAG_MANDATORY};
use crate::errno::{EBADF, EFAULT, EINVAL, ENOENT, EOPNOTSUPP, EPROTONOSUPPORT, Errno, Result};
use crate::events::{ChannelId, ChannelKind};
use crate::file::OpenFile;
use crate::method::{self, Access, AttributeSpec, AttributeType, Method};
use crate::object::Object;
use crate::program::Program;

/// Bytes of `struct ib_uverbs_ioctl_hdr`.
const HEADER_SIZE: u64 = 24;
/// Bytes of `struct ib_uverbs_attr`.
const ATTRIBUTE_SIZE: u64 = 16;
/// Largest header with attributes: a page.
const LARGEST: u16 = 4096;
/// Data of at most this many bytes is in the attribute itself.
const INLINE: u16 = 8;

#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
struct Header {
    length: u16,
    object: u16,
    method: u16,
    attributes: u16,
    reserved: u64,
    driver: u32,
    reserved2: u32,
}

#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
struct RawAttribute {
    id: u16,
    length: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

/// An attribute that passed the checks.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Where it is in the program.
    pub address: u64,
    /// Its number.
    pub id: u16,
    /// Bytes of its data.
    pub length: u16,
    /// `UVERBS_ATTR_F_*`.
    pub flags: u16,
    /// Its data, or where that is.
    pub data: u64,
    /// The channel, for an attribute that names one.
    channel: Option<ChannelId>,
}

/// A decoded request.
#[derive(Debug)]
pub struct Request {
    program: Rc<dyn Program>,
    method: &'static Method,
    attributes: Vec<Attribute>,
}

impl Request {
    /// Reads and checks the request at `address` of `program`.
    pub fn decode(file: &OpenFile, program: Rc<dyn Program>, address: u64) -> Result<Request> {
        let header: Header = read_value(&*program, address)?;
        let expected = HEADER_SIZE + ATTRIBUTE_SIZE * u64::from(header.attributes);
        if header.length > LARGEST || u64::from(header.length) != expected {
            return Err(EINVAL);
        }
        if header.reserved != 0 || header.reserved2 != 0 {
            return Err(EPROTONOSUPPORT);
        }
        if header.driver != number::DRIVER {
            return Err(EINVAL);
        }
        let method = method::find(header.object, header.method).ok_or(EPROTONOSUPPORT)?;
        let start = address.wrapping_add(HEADER_SIZE);
        let mut bytes = vec![0; usize::from(header.attributes) * ATTRIBUTE_SIZE as usize];
        program.read(start, &mut bytes).map_err(|_| EFAULT)?;
        let mut request = Request { program, method, attributes: Vec::new() };
        for (index, chunk) in bytes.chunks_exact(ATTRIBUTE_SIZE as usize).enumerate() {
            let raw = RawAttribute::read_from_bytes(chunk).map_err(|_| EINVAL)?;
            request.accept(file, raw, start.wrapping_add(index as u64 * ATTRIBUTE_SIZE))?;
        }
        let complete = method.attributes.iter().all(|spec| !spec.mandatory || request.has(spec.id));
        if complete { Ok(request) } else { Err(EINVAL) }
    }

    /// The method called.
    pub fn method(&self) -> &'static Method {
        self.method
    }

    /// Checks one attribute as the kernel's `uverbs_process_attr` does.
    fn accept(&mut self, file: &OpenFile, raw: RawAttribute, address: u64) -> Result<()> {
        let Some(spec) = self.method.attributes.iter().find(|spec| spec.id == raw.id) else {
            return if raw.flags & FLAG_MANDATORY != 0 { Err(EPROTONOSUPPORT) } else { Ok(()) };
        };
        if self.has(raw.id) {
            return Err(EINVAL);
        }
        let mut attribute = Attribute {
            address,
            id: raw.id,
            length: raw.length,
            flags: raw.flags,
            data: raw.data,
            channel: None,
        };
        match spec.kind {
            AttributeType::Input { most, grows: true, .. }
                if raw.length > most && !self.is_zero(&attribute, most)? =>
            {
                return Err(EOPNOTSUPP);
            }
            AttributeType::Input { least, most, grows } | AttributeType::Output { least, most, grows } => {
                if raw.length < least || (!grows && raw.length > most) || raw.reserved != 0 {
                    return Err(EINVAL);
                }
            }
            AttributeType::Handle(_, access) => {
                if raw.reserved != 0 || raw.length != 0 {
                    return Err(EINVAL);
                }
                check_handle(file, spec, access, raw.data)?;
            }
            AttributeType::Descriptor => {
                if raw.reserved != 0 || raw.length != 0 || i32::try_from(raw.data as i64).is_err() {
                    return Err(EINVAL);
                }
            }
            AttributeType::Channel(kind, access) => {
                if raw.reserved != 0 || raw.length != 0 {
                    return Err(EINVAL);
                }
                if access == Access::New {
                    file.context()?;
                } else {
                    attribute.channel = Some(self.find_channel(file, kind, raw.data)?);
                }
            }
        }
        self.attributes.push(attribute);
        Ok(())
    }

    /// The channel behind a descriptor number in an attribute.
    fn find_channel(&self, file: &OpenFile, kind: ChannelKind, data: u64) -> Result<ChannelId> {
        let descriptor = i32::try_from(data as i64).map_err(|_| EINVAL)?;
        let id = file.channel_of(&*self.program, descriptor).ok_or(EBADF)?;
        match file.channels.get(&id) {
            Some(channel) if channel.kind() == kind => Ok(id),
            _ => Err(EBADF),
        }
    }

    /// Whether an attribute's data is zero from byte `from` on.
    fn is_zero(&self, attribute: &Attribute, from: u16) -> Result<bool> {
        let bytes = self.bytes_of(attribute)?;
        Ok(bytes.iter().skip(usize::from(from)).all(|byte| *byte == 0))
    }

    /// All data of an attribute.
    fn bytes_of(&self, attribute: &Attribute) -> Result<Vec<u8>> {
        if attribute.length <= INLINE {
            return Ok(attribute.data.to_le_bytes()[..usize::from(attribute.length)].to_vec());
        }
        let mut bytes = vec![0; usize::from(attribute.length)];
        self.program.read(attribute.data, &mut bytes).map_err(|_| EFAULT)?;
        Ok(bytes)
    }

    /// The program that made the request.
    pub fn program(&self) -> &Rc<dyn Program> {
        &self.program
    }

    /// The attribute of that number.
    pub fn find(&self, id: u16) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.id == id)
    }

    /// Whether the program sent that attribute.
    pub fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Bytes of an attribute, 0 if it is not there.
    pub fn length(&self, id: u16) -> usize {
        self.find(id).map_or(0, |attribute| usize::from(attribute.length))
    }

    /// A struct from the start of an attribute; what is missing is zero, more is ignored.
    pub fn truncated<T: FromBytes>(&self, id: u16) -> Result<T> {
        let Some(attribute) = self.find(id) else { return Err(ENOENT) };
        let mut bytes = self.bytes_of(attribute)?;
        bytes.resize(size_of::<T>(), 0);
        T::read_from_bytes(&bytes).map_err(|_| EINVAL)
    }

    /// A struct that may grow: what is missing is zero, more must be zero (`EOPNOTSUPP`).
    pub fn extensible<T: FromBytes>(&self, id: u16) -> Result<T> {
        let Some(attribute) = self.find(id) else {
            return T::read_from_bytes(&vec![0; size_of::<T>()]).map_err(|_| EINVAL);
        };
        if usize::from(attribute.length) > size_of::<T>()
            && !self.is_zero(attribute, size_of::<T>() as u16)?
        {
            return Err(EOPNOTSUPP);
        }
        self.truncated(id)
    }

    /// A number (`uverbs_get_const`): at most `most`.
    pub fn constant(&self, id: u16, most: u64) -> Result<u64> {
        let value = self.find(id).ok_or(ENOENT)?.data;
        if value <= most { Ok(value) } else { Err(EINVAL) }
    }

    /// Flags of 4 or 8 bytes, none if absent; any outside `allowed` is `EINVAL`.
    pub fn flags(&self, id: u16, allowed: u32) -> Result<u32> {
        let Some(attribute) = self.find(id) else { return Ok(0) };
        let value = match attribute.length {
            8 => attribute.data,
            4 => attribute.data & 0xffff_ffff,
            _ => return Err(EINVAL),
        };
        if value & !u64::from(allowed) == 0 { Ok(value as u32) } else { Err(EINVAL) }
    }

    /// The handle in an attribute that has passed its check.
    pub fn handle(&self, id: u16) -> Result<u32> {
        Ok(self.find(id).ok_or(ENOENT)?.data as u32)
    }

    /// The channel in an attribute, if the program named one.
    pub fn channel(&self, id: u16) -> Option<ChannelId> {
        self.find(id)?.channel
    }

    /// A descriptor number in an attribute.
    pub fn descriptor(&self, id: u16) -> Result<i32> {
        let data = self.find(id).ok_or(ENOENT)?.data;
        Ok(data as i32)
    }
}

/// Whether a handle names an object of the right type.
fn check_handle(file: &OpenFile, spec: &AttributeSpec, access: Access, data: u64) -> Result<()> {
    if access == Access::New {
        return file.context().map(drop);
    }
    if (data as i64) < 0 {
        return Err(EINVAL);
    }
    let handle = u32::try_from(data).map_err(|_| ENOENT)?;
    let object = file.objects.get(handle).ok_or(ENOENT)?;
    let kind = match object {
        Object::Pd(_) => number::object::PD,
        Object::Mr(_) => number::object::MR,
        Object::Mw(_) => number::object::MW,
        Object::Cq(_) => number::object::CQ,
        Object::Qp(_) => number::object::QP,
        Object::Srq(_) => number::object::SRQ,
        Object::Ah(_) => number::object::AH,
    };
    match spec.kind {
        AttributeType::Handle(wanted, _) if wanted == kind => Ok(()),
        _ => Err(EINVAL),
    }
}

/// A plain value from a program's memory.
fn read_value<T: FromBytes + IntoBytes>(program: &dyn Program, address: u64) -> Result<T> {
    let mut bytes = vec![0; size_of::<T>()];
    program.read(address, &mut bytes).map_err(|_| EFAULT)?;
    T::read_from_bytes(&bytes).map_err(|_| EFAULT)
}

/// The driver's request, as far as it is there; too short for `least` bytes is `EINVAL`.
pub fn driver_request<T: FromBytes>(request: &Request, least: usize) -> Result<T> {
    if request.length(DRIVER_IN) < least {
        return Err(EINVAL);
    }
    request.truncated(DRIVER_IN)
}

/// `EINVAL` unless there is room for `least` bytes of the driver's answer.
pub fn driver_room(request: &Request, least: usize) -> Result<()> {
    if request.length(DRIVER_OUT) < least { Err(EINVAL) } else { Ok(()) }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}
