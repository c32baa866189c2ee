// SPDX-License-Identifier: GPL-2.0-only
/* The PCI function: its registers, its interrupts, its resets. */
#include <linux/etherdevice.h>
#include <linux/module.h>

#include "stand_in.h"

static void stand_in_reset(struct work_struct *work)
{
	struct stand_in *function = container_of(work, struct stand_in, reset);
	int error = pci_reset_function(function->core.pdev);

	if (error)
		dev_err(&function->core.pdev->dev, "reset failed: %d\n", error);
}

static int stand_in_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct device *device = &pdev->dev;
	struct stand_in *function;
	int error;

	function = devm_kzalloc(device, sizeof(*function), GFP_KERNEL);
	if (!function)
		return -ENOMEM;
	error = pcim_enable_device(pdev);
	if (error)
		return error;
	error = dma_set_mask_and_coherent(device, DMA_BIT_MASK(64));
	if (error)
		return error;
	function->private.hw_addr = pcim_iomap(pdev, 0, 0);
	if (!function->private.hw_addr)
		return -ENOMEM;
	pci_set_master(pdev);
	function->vectors = pci_alloc_irq_vectors(pdev, STAND_IN_MIN_VECTORS, STAND_IN_MAX_VECTORS,
						  PCI_IRQ_MSIX);
	if (function->vectors < 0)
		return function->vectors;
	/* The network driver's own. */
	__set_bit(0, function->taken);

	mutex_init(&function->lock);
	INIT_WORK(&function->reset, stand_in_reset);
	function->core.pdev = pdev;
	function->core.rdma_protocol = IIDC_RDMA_PROTOCOL_ROCEV2;
	function->core.iidc_priv = &function->private;
	function->private.pf_id = PCI_FUNC(pdev->devfn);
	function->private.vport_id = 1;
	/* One traffic class, which has all there is. */
	function->private.qos_info.num_tc = 1;
	function->private.qos_info.vport_relative_bw = 100;
	function->private.qos_info.tc_info[0].rel_bw = 100;
	function->private.netdev = stand_in_interface(function);
	if (IS_ERR(function->private.netdev)) {
		error = PTR_ERR(function->private.netdev);
		goto free_vectors;
	}
	pci_set_drvdata(pdev, function);
	error = stand_in_plug(function);
	if (error)
		goto free_interface;
	return 0;

free_interface:
	unregister_netdev(function->private.netdev);
	free_netdev(function->private.netdev);
free_vectors:
	pci_free_irq_vectors(pdev);
	return error;
}

static void stand_in_remove(struct pci_dev *pdev)
{
	struct stand_in *function = pci_get_drvdata(pdev);

	stand_in_unplug(function);
	cancel_work_sync(&function->reset);
	unregister_netdev(function->private.netdev);
	free_netdev(function->private.netdev);
	pci_free_irq_vectors(pdev);
}

/* Around a reset, whoever asked for it, irdma is away. */
static void stand_in_reset_prepare(struct pci_dev *pdev)
{
	struct stand_in *function = pci_get_drvdata(pdev);

	stand_in_tell(function, IIDC_RDMA_EVENT_WARN_RESET);
	stand_in_unplug(function);
}

static void stand_in_reset_done(struct pci_dev *pdev)
{
	struct stand_in *function = pci_get_drvdata(pdev);
	int error = stand_in_plug(function);

	if (error)
		dev_err(&pdev->dev, "no RDMA after the reset: %d\n", error);
}

static const struct pci_error_handlers stand_in_errors = {
	.reset_prepare = stand_in_reset_prepare,
	.reset_done = stand_in_reset_done,
};

/* E810-C for backplane, QSFP and SFP. */
static const struct pci_device_id stand_in_ids[] = {
	{ PCI_VDEVICE(INTEL, 0x1591) },
	{ PCI_VDEVICE(INTEL, 0x1592) },
	{ PCI_VDEVICE(INTEL, 0x1593) },
	{ }
};
MODULE_DEVICE_TABLE(pci, stand_in_ids);

static struct pci_driver stand_in_driver = {
	.name = KBUILD_MODNAME,
	.id_table = stand_in_ids,
	.probe = stand_in_probe,
	.remove = stand_in_remove,
	.err_handler = &stand_in_errors,
};
module_pci_driver(stand_in_driver);

MODULE_DESCRIPTION("Stand-in for ice.ko on a software E810 with nothing but RDMA");
MODULE_LICENSE("GPL");
