// SPDX-License-Identifier: GPL-2.0
/* The network interface: it has addresses and a link; frames end here. */
#include <linux/etherdevice.h>

#include "stand_in.h"

static netdev_tx_t stand_in_transmit(struct sk_buff *frame, struct net_device *interface)
{
	dev_kfree_skb_any(frame);
	DEV_STATS_INC(interface, tx_dropped);
	return NETDEV_TX_OK;
}

static int stand_in_open(struct net_device *interface)
{
	netif_carrier_on(interface);
	netif_start_queue(interface);
	return 0;
}

static int stand_in_stop(struct net_device *interface)
{
	netif_stop_queue(interface);
	netif_carrier_off(interface);
	return 0;
}

static int stand_in_change_mtu(struct net_device *interface, int mtu)
{
	struct stand_in **function = netdev_priv(interface);

	stand_in_tell(*function, IIDC_RDMA_EVENT_BEFORE_MTU_CHANGE);
	WRITE_ONCE(interface->mtu, mtu);
	stand_in_tell(*function, IIDC_RDMA_EVENT_AFTER_MTU_CHANGE);
	return 0;
}

static const struct net_device_ops stand_in_operations = {
	.ndo_open = stand_in_open,
	.ndo_stop = stand_in_stop,
	.ndo_start_xmit = stand_in_transmit,
	.ndo_change_mtu = stand_in_change_mtu,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

/* A registered interface of the function. */
struct net_device *stand_in_interface(struct stand_in *function)
{
	struct net_device *interface;
	struct stand_in **owner;
	int error;

	interface = alloc_etherdev(sizeof(*owner));
	if (!interface)
		return ERR_PTR(-ENOMEM);
	owner = netdev_priv(interface);
	*owner = function;
	SET_NETDEV_DEV(interface, &function->core.pdev->dev);
	interface->netdev_ops = &stand_in_operations;
	interface->max_mtu = 9702;
	eth_hw_addr_random(interface);
	netif_carrier_off(interface);
	error = register_netdev(interface);
	if (error) {
		free_netdev(interface);
		return ERR_PTR(error);
	}
	return interface;
}
