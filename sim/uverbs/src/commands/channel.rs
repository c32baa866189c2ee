//! Event channels: of completions, and of asynchronous events.

use crate::abi::core::{CreateCompChannel, CreateCompChannelResp};
use crate::abi::number::{CORE_IN, CORE_OUT};
use crate::answer::{Answer, Descriptor};
use crate::call::Call;
use crate::errno::Result;
use crate::events::{Channel, ChannelKind};

/// `IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL`.
pub fn create_completion(call: &mut Call) -> Result<Answer> {
    call.request.extensible::<CreateCompChannel>(CORE_IN)?;
    call.file.context()?;
    let address = Answer::data_place(call.request, CORE_OUT)?;
    let mut answer = create(call, ChannelKind::Completion, address, 4)?;
    // Room beyond the answer is zeroed; the number itself is stored by the program's side.
    answer.core(call.request, &CreateCompChannelResp::default());
    Ok(answer)
}

/// `UVERBS_METHOD_ASYNC_EVENT_ALLOC`.
pub fn allocate_events(call: &mut Call) -> Result<Answer> {
    let address = Answer::descriptor_place(call.request, 0)?;
    let answer = create(call, ChannelKind::Asynchronous, address, 8)?;
    if let Some(descriptor) = &answer.descriptor
        && call.file.default_events.is_none()
    {
        call.file.default_events = Some(descriptor.channel);
    }
    Ok(answer)
}

/// Makes a channel whose descriptor number goes to `address`.
fn create(call: &mut Call, kind: ChannelKind, address: u64, length: u32) -> Result<Answer> {
    let (id, channel, end) = Channel::new(kind)?;
    call.file.channels.insert(id, channel);
    Ok(Answer::granting(Descriptor { end, channel: id, address, length }))
}
