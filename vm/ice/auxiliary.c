// SPDX-License-Identifier: GPL-2.0-only
/* The auxiliary device that irdma binds to. */
#include <linux/slab.h>

#include "stand_in.h"

static void stand_in_release(struct device *device)
{
	kfree(container_of(device, struct iidc_rdma_core_auxiliary_dev, adev.dev));
}

/* Shows the function to irdma. */
int stand_in_plug(struct stand_in *function)
{
	struct iidc_rdma_core_auxiliary_dev *plug;
	int error;

	plug = kzalloc(sizeof(*plug), GFP_KERNEL);
	if (!plug)
		return -ENOMEM;
	plug->cdev_info = &function->core;
	plug->adev.name = "roce";
	plug->adev.id = pci_dev_id(function->core.pdev);
	plug->adev.dev.parent = &function->core.pdev->dev;
	plug->adev.dev.release = stand_in_release;
	error = auxiliary_device_init(&plug->adev);
	if (error) {
		kfree(plug);
		return error;
	}
	/* irdma's probe, which may run within the next call, asks for it. */
	function->core.adev = &plug->adev;
	error = auxiliary_device_add(&plug->adev);
	if (error) {
		function->core.adev = NULL;
		auxiliary_device_uninit(&plug->adev);
		return error;
	}
	mutex_lock(&function->lock);
	function->plugged = plug;
	mutex_unlock(&function->lock);
	return 0;
}

/* Takes the function away from irdma; returns when irdma has let go of it. */
void stand_in_unplug(struct stand_in *function)
{
	struct iidc_rdma_core_auxiliary_dev *plug;

	mutex_lock(&function->lock);
	plug = function->plugged;
	function->plugged = NULL;
	mutex_unlock(&function->lock);
	if (!plug)
		return;
	auxiliary_device_delete(&plug->adev);
	auxiliary_device_uninit(&plug->adev);
	function->core.adev = NULL;
}

/* Tells irdma, if it is bound, of something that the network driver would see first. */
void stand_in_tell(struct stand_in *function, enum iidc_rdma_event_type type)
{
	struct iidc_rdma_core_auxiliary_drv *driver;
	struct iidc_rdma_event event = { };
	struct device *device;

	set_bit(type, event.type);
	mutex_lock(&function->lock);
	if (function->plugged) {
		device = &function->plugged->adev.dev;
		device_lock(device);
		if (device->driver) {
			driver = container_of(device->driver, struct iidc_rdma_core_auxiliary_drv,
					      adrv.driver);
			if (driver->event_handler)
				driver->event_handler(&function->core, &event);
		}
		device_unlock(device);
	}
	mutex_unlock(&function->lock);
}
