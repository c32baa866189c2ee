// SPDX-License-Identifier: GPL-2.0-only
/* What irdma.ko links against; the names and their meaning are those of iidc_rdma_ice.h. */
#include <linux/module.h>

#include "stand_in.h"

int ice_add_rdma_qset(struct iidc_rdma_core_dev_info *core, struct iidc_rdma_qset_params *qset)
{
	/* The scheduler is the device's own affair: any node that no other set has will do. */
	qset->teid = atomic_inc_return(&stand_in_of(core)->node);
	return 0;
}
EXPORT_SYMBOL_GPL(ice_add_rdma_qset);

int ice_del_rdma_qset(struct iidc_rdma_core_dev_info *core, struct iidc_rdma_qset_params *qset)
{
	return 0;
}
EXPORT_SYMBOL_GPL(ice_del_rdma_qset);

int ice_rdma_request_reset(struct iidc_rdma_core_dev_info *core, enum iidc_rdma_reset_type type)
{
	schedule_work(&stand_in_of(core)->reset);
	return 0;
}
EXPORT_SYMBOL_GPL(ice_rdma_request_reset);

int ice_rdma_update_vsi_filter(struct iidc_rdma_core_dev_info *core, u16 vsi, bool enable)
{
	return 0;
}
EXPORT_SYMBOL_GPL(ice_rdma_update_vsi_filter);

int ice_alloc_rdma_qvector(struct iidc_rdma_core_dev_info *core, struct msix_entry *entry)
{
	struct stand_in *function = stand_in_of(core);
	int vector = find_first_zero_bit(function->taken, function->vectors);

	if (vector >= function->vectors)
		return -ENOSPC;
	__set_bit(vector, function->taken);
	entry->entry = vector;
	entry->vector = pci_irq_vector(core->pdev, vector);
	return 0;
}
EXPORT_SYMBOL_GPL(ice_alloc_rdma_qvector);

void ice_free_rdma_qvector(struct iidc_rdma_core_dev_info *core, struct msix_entry *entry)
{
	__clear_bit(entry->entry, stand_in_of(core)->taken);
}
EXPORT_SYMBOL_GPL(ice_free_rdma_qvector);
