// SPDX-License-Identifier: GPL-2.0-only
/* The network interface: it has addresses and a link; frames end here. */
#include <linux/etherdevice.h>
#include <linux/unaligned.h>

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

/* The address that the device gives its function, in bytes of two registers that no E810 has. */
#define STAND_IN_ADDRESS_LOW 0x7e0000
#define STAND_IN_ADDRESS_HIGH 0x7e0004

static void stand_in_address(struct stand_in *function, struct net_device *interface)
{
	u32 low = readl(function->private.hw_addr + STAND_IN_ADDRESS_LOW);
	u32 high = readl(function->private.hw_addr + STAND_IN_ADDRESS_HIGH);
	u8 address[ETH_ALEN];

	put_unaligned_le32(low, address);
	put_unaligned_le16(high, address + 4);
	if (is_valid_ether_addr(address))
		eth_hw_addr_set(interface, address);
	else
		eth_hw_addr_random(interface);
}

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
	stand_in_address(function, interface);
	netif_carrier_off(interface);
	error = register_netdev(interface);
	if (error) {
		free_netdev(interface);
		return ERR_PTR(error);
	}
	return interface;
}
