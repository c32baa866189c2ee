/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A stand-in for ice.ko on a PCI function that has only the RDMA half of an E810: what irdma.ko
 * asks of the network driver, and a network interface without a network behind it.
 */
#ifndef STAND_IN_H
#define STAND_IN_H

#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/workqueue.h>
#include <linux/net/intel/iidc_rdma.h>
#include <linux/net/intel/iidc_rdma_ice.h>

/* Interrupts: the first is the network driver's own, the others are irdma's. */
#define STAND_IN_MIN_VECTORS 3
#define STAND_IN_MAX_VECTORS 32

/* A function of the device. */
struct stand_in {
	/* What irdma sees of it. */
	struct iidc_rdma_core_dev_info core;
	struct iidc_rdma_priv_dev_info private;
	/* Guards `plugged`, the auxiliary device while irdma may be bound to it. */
	struct mutex lock;
	struct iidc_rdma_core_auxiliary_dev *plugged;
	/* For a reset that irdma asks for, in a context that cannot wait for it. */
	struct work_struct reset;
	/* Interrupts that irdma has taken, by number in the MSI-X table. */
	DECLARE_BITMAP(taken, STAND_IN_MAX_VECTORS);
	int vectors;
	/* Next transmit scheduler node. */
	atomic_t node;
};

static inline struct stand_in *stand_in_of(struct iidc_rdma_core_dev_info *core)
{
	return container_of(core, struct stand_in, core);
}

/* auxiliary.c */
int stand_in_plug(struct stand_in *function);
void stand_in_unplug(struct stand_in *function);
void stand_in_tell(struct stand_in *function, enum iidc_rdma_event_type type);

/* interface.c */
struct net_device *stand_in_interface(struct stand_in *function);

#endif
