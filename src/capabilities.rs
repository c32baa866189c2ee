//! What the kernel and the device behind it can do, as the open call reported it.

use irdma_hw::limits::{DeviceLimits, Features, HardwareGeneration};
use rdma_core_sys::driver_data::{AllocContextResponse, MAX_HW_SRQ_QUANTA, MIN_HW_WQ_SIZE, USE_RAW_ATTR};

/// What an open context can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Formats, features and sizes; checked.
    pub limits: DeviceLimits,
    /// Revision as the kernel reported it: 0 legacy, else 1 to 4.
    pub hardware_revision: u8,
    /// Sizes go to the kernel as the program gave them, not as ring sizes.
    pub raw_attributes: bool,
    /// Queue pairs of the device; 0 if not said.
    pub queue_pairs: u32,
}

/// Why a device cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A revision that this provider does not know.
    UnknownRevision(u8),
    /// A limit that the formats cannot express.
    Impossible(&'static str),
}

/// WQEs of the smallest work queue on kernels that do not say.
const SMALLEST_WORK_QUEUE: u32 = 8;

impl Capabilities {
    /// The newest revision whose formats are known for sure.
    pub const NEWEST_KNOWN_REVISION: u8 = 3;

    /// Reads the kernel's response to an open with user ABI version `asked`.
    pub fn from_response(response: &AllocContextResponse, asked: u8) -> Result<Capabilities, Refusal> {
        let generation = match response.hw_rev {
            0 | 1 => HardwareGeneration::Gen1,
            2 => HardwareGeneration::Gen2,
            // Kernels report 4 for a device that speaks to programs as 3 does.
            3 | 4 => HardwareGeneration::Gen3,
            revision => return Err(Refusal::UnknownRevision(revision)),
        };
        let capabilities = Capabilities {
            limits: match response.hw_rev {
                0 => DeviceLimits::legacy(response.kernel_ver),
                _ => limits(response, generation, asked),
            },
            hardware_revision: response.hw_rev,
            raw_attributes: response.hw_rev != 0 && response.comp_mask & USE_RAW_ATTR != 0,
            queue_pairs: response.max_qps,
        };
        capabilities.limits.check().map_err(Refusal::Impossible)?;
        Ok(capabilities)
    }

    /// Whether the kernel is i40iw.
    pub fn is_legacy(&self) -> bool {
        self.hardware_revision == 0
    }

    /// Whether memory windows of type 2 exist.
    pub fn has_type_2_windows(&self) -> bool {
        self.hardware_revision >= 3
    }
}

/// The limits in the response of a kernel that reports them.
fn limits(response: &AllocContextResponse, generation: HardwareGeneration, asked: u8) -> DeviceLimits {
    let says = |bit: u64| response.comp_mask & bit != 0;
    DeviceLimits {
        generation,
        // Those that are known are in the lower bits.
        features: Features::from_bits_retain(response.feature_flags as u16),
        abi_version: asked,
        max_fragments: byte(response.max_hw_wq_frags),
        max_read_fragments: byte(response.max_hw_read_sges),
        max_inline: byte(response.max_hw_inline),
        send_chunk: byte(response.max_hw_sq_chunk.into()),
        max_send_quanta: response.max_hw_wq_quanta,
        max_receive_quanta: response.max_hw_rq_quanta,
        max_shared_quanta: if says(MAX_HW_SRQ_QUANTA) { response.max_hw_srq_quanta } else { 0 },
        min_work_queue: if says(MIN_HW_WQ_SIZE) {
            response.min_hw_wq_size.into()
        } else {
            SMALLEST_WORK_QUEUE
        },
        max_completion_slots: response.max_hw_cq_size,
    }
}

/// A limit that no format can express if it is more than a byte: then the most, which none can express
/// either.
fn byte(limit: u32) -> u8 {
    limit.try_into().unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(revision: u8) -> AllocContextResponse {
        AllocContextResponse {
            max_qps: 1024,
            kernel_ver: 5,
            feature_flags: 3,
            max_hw_wq_frags: 13,
            max_hw_read_sges: 13,
            max_hw_inline: 101,
            max_hw_rq_quanta: 32768,
            max_hw_wq_quanta: 32768,
            min_hw_cq_size: 4,
            max_hw_cq_size: 1_048_575,
            max_hw_sq_chunk: 8,
            hw_rev: revision,
            comp_mask: USE_RAW_ATTR | MIN_HW_WQ_SIZE,
            min_hw_wq_size: 16,
            ..AllocContextResponse::default()
        }
    }

    #[test]
    fn revisions_name_generations() {
        let generation = |revision| {
            Capabilities::from_response(&response(revision), 5)
                .map(|capabilities| capabilities.limits.generation)
        };
        assert_eq!(generation(0), Ok(HardwareGeneration::Gen1));
        assert_eq!(generation(2), Ok(HardwareGeneration::Gen2));
        assert_eq!(generation(3), Ok(HardwareGeneration::Gen3));
        assert_eq!(generation(4), Ok(HardwareGeneration::Gen3));
        assert_eq!(generation(5), Err(Refusal::UnknownRevision(5)));
        assert_eq!(generation(255), Err(Refusal::UnknownRevision(255)));
    }

    #[test]
    fn a_short_response_has_the_defaults_of_its_time() {
        let short = AllocContextResponse { comp_mask: 0, min_hw_wq_size: 0, ..response(2) };
        let capabilities = Capabilities::from_response(&short, 5).unwrap();
        assert_eq!(capabilities.limits.min_work_queue, 8);
        assert_eq!(capabilities.limits.max_shared_quanta, 0);
        assert!(!capabilities.raw_attributes);
        let full = Capabilities::from_response(&response(2), 5).unwrap();
        assert_eq!(full.limits.min_work_queue, 16);
        assert!(full.raw_attributes);
    }

    #[test]
    fn the_version_is_the_accepted_one_or_that_of_a_legacy_kernel() {
        let version = |revision, asked| {
            let response = AllocContextResponse { kernel_ver: 3, ..response(revision) };
            Capabilities::from_response(&response, asked).unwrap().limits.abi_version
        };
        assert_eq!(version(2, 4), 4);
        assert_eq!(version(2, 5), 5);
        assert_eq!(version(0, 4), 3);
    }

    #[test]
    fn limits_that_no_format_has_are_refused() {
        let refused = |response: AllocContextResponse| {
            matches!(Capabilities::from_response(&response, 5), Err(Refusal::Impossible(_)))
        };
        assert!(refused(AllocContextResponse { max_hw_wq_frags: 1000, ..response(2) }));
        assert!(refused(AllocContextResponse { max_hw_inline: 5000, ..response(2) }));
        assert!(refused(AllocContextResponse { max_hw_sq_chunk: 0, ..response(2) }));
        assert!(refused(AllocContextResponse { max_hw_wq_quanta: u32::MAX, ..response(2) }));
        assert!(refused(AllocContextResponse { hw_rev: 2, ..AllocContextResponse::default() }));
    }
}
