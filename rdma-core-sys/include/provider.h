/*
 * The private provider ABI of libibverbs, one layout per family of rdma-core
 * releases. Distributions install the public headers only, so it is declared
 * here; tests/abi.rs compares it with the private headers of rdma-core.
 *
 * IRDMA_LAYOUT is the number of the layout, IRDMA_PABI the number in the names
 * of the registration function and of the symbol version IBVERBS_PRIVATE_*.
 * Both come from the table in layouts.rs. A layout differs from the one before
 * by the lines under `#if IRDMA_LAYOUT >= N`.
 */
#ifndef IRDMA_PROVIDER_H
#define IRDMA_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

/* ---- objects ------------------------------------------------------------ */

struct list_node {
	struct list_node *next, *prev;
};

struct verbs_xrcd;

struct verbs_srq {
	struct ibv_srq srq;
	enum ibv_srq_type srq_type;
	struct verbs_xrcd *xrcd;
	struct ibv_cq *cq;
	uint32_t srq_num;
};

enum ibv_mr_type {
	IBV_MR_TYPE_MR,
	IBV_MR_TYPE_NULL_MR,
	IBV_MR_TYPE_IMPORTED_MR,
	IBV_MR_TYPE_DMABUF_MR,
};

struct verbs_mr {
	struct ibv_mr ibv_mr;
	enum ibv_mr_type mr_type;
	int access;
};

enum verbs_qp_mask {
	VERBS_QP_XRCD = 1,
	VERBS_QP_EX = 2,
};

/* As large as this release's verbs.h makes it; see src/queue_pair.rs. */
struct verbs_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex qp_ex;
	};
	uint32_t comp_mask;
	struct verbs_xrcd *xrcd;
};

struct verbs_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex cq_ex;
	};
};

/* ---- devices and their match -------------------------------------------- */

enum {
	VERBS_MATCH_SENTINEL = 0,
	VERBS_MATCH_PCI = 1,
	VERBS_MATCH_MODALIAS = 2,
	VERBS_MATCH_DRIVER_ID = 3,
};

struct verbs_match_ent {
	void *driver_data;
	union {
		const char *modalias;
		uint64_t driver_id;
	} u;
	uint16_t vendor;
	uint16_t device;
	uint8_t kind;
};

struct verbs_sysfs_dev {
	struct list_node entry;
	void *provider_data;
	const struct verbs_match_ent *match;
	unsigned int flags;
	char sysfs_name[IBV_SYSFS_NAME_MAX];
	dev_t sysfs_cdev;
	char ibdev_name[IBV_SYSFS_NAME_MAX];
	char ibdev_path[IBV_SYSFS_PATH_MAX];
	char modalias[512];
	uint64_t node_guid;
	uint32_t driver_id;
	enum ibv_node_type node_type;
	int ibdev_idx;
	uint32_t num_ports;
	uint32_t abi_ver;
	struct timespec time_created;
};

struct verbs_device;

struct verbs_device_ops {
	const char *name;
	uint32_t match_min_abi_version;
	uint32_t match_max_abi_version;
	const struct verbs_match_ent *match_table;
	const struct verbs_device_ops **static_providers;
	bool (*match_device)(struct verbs_sysfs_dev *);
	struct verbs_context *(*alloc_context)(struct ibv_device *, int cmd_fd, void *private_data);
	struct verbs_context *(*import_context)(struct ibv_device *, int cmd_fd);
	struct verbs_device *(*alloc_device)(struct verbs_sysfs_dev *);
	void (*uninit_device)(struct verbs_device *);
};

struct verbs_device {
	struct ibv_device device;
	const struct verbs_device_ops *ops;
	int refcount; /* an atomic */
	struct list_node entry;
	struct verbs_sysfs_dev *sysfs;
	uint64_t core_support;
};

/* ---- operations of a context --------------------------------------------- */

/* An operation that this provider never fills. */
typedef void (*unfilled_op)(void);

/* In alphabetical order: a new operation moves those behind it. */
struct verbs_context_ops {
	unfilled_op advise_mr;
#if IRDMA_LAYOUT >= 64
	unfilled_op alloc_buf;
#endif
	unfilled_op alloc_dm;
#if IRDMA_LAYOUT >= 59
	unfilled_op alloc_dmah;
#endif
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *, enum ibv_mw_type);
	unfilled_op alloc_null_mr;
	struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *, struct ibv_parent_domain_init_attr *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	struct ibv_td *(*alloc_td)(struct ibv_context *, struct ibv_td_init_attr *);
	void (*async_event)(struct ibv_context *, struct ibv_async_event *);
	unfilled_op attach_counters_point_flow;
	int (*attach_mcast)(struct ibv_qp *, const union ibv_gid *, uint16_t lid);
	int (*bind_mw)(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
	unfilled_op close_xrcd;
	void (*cq_event)(struct ibv_cq *);
	struct ibv_ah *(*create_ah)(struct ibv_pd *, struct ibv_ah_attr *);
#if IRDMA_LAYOUT >= 65
	unfilled_op create_comp_cntr;
#endif
	unfilled_op create_counters;
	struct ibv_cq *(*create_cq)(struct ibv_context *, int cqe, struct ibv_comp_channel *, int comp_vector);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);
	unfilled_op create_flow;
	unfilled_op create_flow_action_esp;
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *);
	unfilled_op create_rwq_ind_table;
	struct ibv_srq *(*create_srq)(struct ibv_pd *, struct ibv_srq_init_attr *);
	unfilled_op create_srq_ex;
	unfilled_op create_wq;
#if IRDMA_LAYOUT >= 59
	unfilled_op dealloc_dmah;
#endif
	int (*dealloc_mw)(struct ibv_mw *);
	int (*dealloc_pd)(struct ibv_pd *);
	int (*dealloc_td)(struct ibv_td *);
	int (*dereg_mr)(struct verbs_mr *);
	int (*destroy_ah)(struct ibv_ah *);
#if IRDMA_LAYOUT >= 65
	unfilled_op destroy_comp_cntr;
#endif
	unfilled_op destroy_counters;
	int (*destroy_cq)(struct ibv_cq *);
	unfilled_op destroy_flow;
	unfilled_op destroy_flow_action;
	int (*destroy_qp)(struct ibv_qp *);
	unfilled_op destroy_rwq_ind_table;
	int (*destroy_srq)(struct ibv_srq *);
	unfilled_op destroy_wq;
	int (*detach_mcast)(struct ibv_qp *, const union ibv_gid *, uint16_t lid);
#if IRDMA_LAYOUT >= 62
	unfilled_op dm_export_dmabuf_fd;
#endif
#if IRDMA_LAYOUT >= 64
	unfilled_op free_buf;
#endif
	void (*free_context)(struct ibv_context *);
	unfilled_op free_dm;
	unfilled_op get_srq_num;
	unfilled_op import_dm;
	unfilled_op import_mr;
	unfilled_op import_pd;
#if IRDMA_LAYOUT >= 65
	unfilled_op inc_comp_cntr;
	unfilled_op inc_err_comp_cntr;
#endif
	unfilled_op modify_cq;
	unfilled_op modify_flow_action_esp;
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int attr_mask);
	unfilled_op modify_qp_rate_limit;
	int (*modify_srq)(struct ibv_srq *, struct ibv_srq_attr *, int srq_attr_mask);
	unfilled_op modify_wq;
	unfilled_op open_qp;
	unfilled_op open_xrcd;
	int (*poll_cq)(struct ibv_cq *, int num_entries, struct ibv_wc *);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad_wr);
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad_wr);
	unfilled_op post_srq_ops;
	int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad_wr);
#if IRDMA_LAYOUT >= 65
	unfilled_op qp_attach_comp_cntr;
	unfilled_op query_comp_cntr_caps;
#endif
	int (*query_device_ex)(struct ibv_context *, const struct ibv_query_device_ex_input *,
			       struct ibv_device_attr_ex *, size_t attr_size);
	unfilled_op query_ece;
	int (*query_port)(struct ibv_context *, uint8_t port_num, struct ibv_port_attr *);
#if IRDMA_LAYOUT >= 62
	unfilled_op query_port_speed;
#endif
	int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int attr_mask, struct ibv_qp_init_attr *);
	unfilled_op query_qp_data_in_order;
	unfilled_op query_rt_values;
	int (*query_srq)(struct ibv_srq *, struct ibv_srq_attr *);
#if IRDMA_LAYOUT >= 65
	unfilled_op read_comp_cntr;
#endif
	unfilled_op read_counters;
#if IRDMA_LAYOUT >= 65
	unfilled_op read_err_comp_cntr;
#endif
	unfilled_op reg_dm_mr;
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *, uint64_t offset, size_t length, uint64_t iova,
					int fd, int access);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *addr, size_t length, uint64_t hca_va, int access);
#if IRDMA_LAYOUT >= 59
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct ibv_mr_init_attr *);
#endif
	int (*req_notify_cq)(struct ibv_cq *, int solicited_only);
	int (*rereg_mr)(struct verbs_mr *, int flags, struct ibv_pd *, void *addr, size_t length, int access);
	int (*resize_cq)(struct ibv_cq *, int cqe);
#if IRDMA_LAYOUT >= 65
	unfilled_op set_comp_cntr;
#endif
	unfilled_op set_ece;
#if IRDMA_LAYOUT >= 65
	unfilled_op set_err_comp_cntr;
#endif
	unfilled_op unimport_dm;
	unfilled_op unimport_mr;
	unfilled_op unimport_pd;
};

/* ---- core part of each command -------------------------------------------- */
/* The driver's request follows it. */

struct ex_hdr {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_ex_cmd_hdr ex_hdr;
};

#define CORE_COMMAND(name, core)                                               \
	struct name {                                                          \
		struct ib_uverbs_cmd_hdr hdr;                                  \
		struct core core_payload;                                      \
	}
#define CORE_COMMAND_EX(name, core)                                            \
	struct name {                                                          \
		struct ex_hdr hdr;                                             \
		struct core core_payload;                                      \
	}

CORE_COMMAND(ibv_get_context, ib_uverbs_get_context);
CORE_COMMAND(ibv_query_port, ib_uverbs_query_port);
CORE_COMMAND(ibv_alloc_pd, ib_uverbs_alloc_pd);
CORE_COMMAND(ibv_reg_mr, ib_uverbs_reg_mr);
CORE_COMMAND(ibv_rereg_mr, ib_uverbs_rereg_mr);
CORE_COMMAND(ibv_alloc_mw, ib_uverbs_alloc_mw);
CORE_COMMAND(ibv_create_cq, ib_uverbs_create_cq);
CORE_COMMAND(ibv_resize_cq, ib_uverbs_resize_cq);
CORE_COMMAND(ibv_create_qp, ib_uverbs_create_qp);
CORE_COMMAND(ibv_query_qp, ib_uverbs_query_qp);
CORE_COMMAND(ibv_modify_qp, ib_uverbs_modify_qp);
CORE_COMMAND(ibv_create_srq, ib_uverbs_create_srq);
CORE_COMMAND(ibv_modify_srq, ib_uverbs_modify_srq);
CORE_COMMAND(ibv_query_srq, ib_uverbs_query_srq);
CORE_COMMAND_EX(ibv_create_cq_ex, ib_uverbs_ex_create_cq);
CORE_COMMAND_EX(ibv_create_qp_ex, ib_uverbs_ex_create_qp);
CORE_COMMAND_EX(ibv_modify_qp_ex, ib_uverbs_ex_modify_qp);

/* ---- what libibverbs does for a provider ---------------------------------- */

enum {
	VERBS_LOG_LEVEL_NONE,
	VERBS_LOG_ERR,
	VERBS_LOG_WARN,
	VERBS_LOG_INFO,
	VERBS_LOG_DEBUG,
};

struct ibv_command_buffer;
struct ibv_fd_arr;
struct verbs_create_cq_prov_attr;

void __verbs_log(struct verbs_context *ctx, uint32_t level, const char *fmt, ...);

#define REGISTER_NAMED(pabi) verbs_register_driver_##pabi
#define REGISTER(pabi) REGISTER_NAMED(pabi)
void REGISTER(IRDMA_PABI)(const struct verbs_device_ops *ops);

void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t alloc_size,
				    struct verbs_context *context_offset, uint32_t driver_id);
void verbs_uninit_context(struct verbs_context *context);
void verbs_set_ops(struct verbs_context *vctx, const struct verbs_context_ops *ops);

int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

int ibv_cmd_get_context(struct verbs_context *context, struct ibv_get_context *cmd, size_t cmd_size,
#if IRDMA_LAYOUT >= 57
			struct ibv_fd_arr *fd_arr,
#endif
			struct ib_uverbs_get_context_resp *resp, size_t resp_size);
int ibv_cmd_query_device_any(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			     struct ibv_device_attr_ex *attr, size_t attr_size,
			     struct ib_uverbs_ex_query_device_resp *resp, size_t *resp_size);
int ibv_cmd_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr,
		       struct ibv_query_port *cmd, size_t cmd_size);

int ibv_cmd_alloc_pd(struct ibv_context *context, struct ibv_pd *pd, struct ibv_alloc_pd *cmd,
		     size_t cmd_size, struct ib_uverbs_alloc_pd_resp *resp, size_t resp_size);
int ibv_cmd_dealloc_pd(struct ibv_pd *pd);

int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access,
		   struct verbs_mr *vmr, struct ibv_reg_mr *cmd, size_t cmd_size,
		   struct ib_uverbs_reg_mr_resp *resp, size_t resp_size);
int ibv_cmd_rereg_mr(struct verbs_mr *vmr, uint32_t flags, void *addr, size_t length, uint64_t hca_va,
		     int access, struct ibv_pd *pd, struct ibv_rereg_mr *cmd, size_t cmd_sz,
		     struct ib_uverbs_rereg_mr_resp *resp, size_t resp_sz);
int ibv_cmd_dereg_mr(struct verbs_mr *vmr);
/* Seven arguments up to rdma-core 53: the eighth is then not looked at. */
int ibv_cmd_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
			  int access, struct verbs_mr *vmr, struct ibv_command_buffer *driver);

int ibv_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type, struct ibv_mw *mw,
		     struct ibv_alloc_mw *cmd, size_t cmd_size,
		     struct ib_uverbs_alloc_mw_resp *resp, size_t resp_size);
int ibv_cmd_dealloc_mw(struct ibv_mw *mw);

int ibv_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah, struct ibv_ah_attr *attr,
		      struct ib_uverbs_create_ah_resp *resp, size_t resp_size);
int ibv_cmd_destroy_ah(struct ibv_ah *ah);
int ibv_cmd_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int ibv_cmd_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);

int ibv_cmd_create_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel,
		      int comp_vector, struct ibv_cq *cq, struct ibv_create_cq *cmd, size_t cmd_size,
		      struct ib_uverbs_create_cq_resp *resp, size_t resp_size);
int ibv_cmd_create_cq_ex(struct ibv_context *context, const struct ibv_cq_init_attr_ex *cq_attr,
#if IRDMA_LAYOUT >= 59
			 struct verbs_create_cq_prov_attr *prov_attr,
#endif
			 struct verbs_cq *cq, struct ibv_create_cq_ex *cmd, size_t cmd_size,
			 struct ib_uverbs_ex_create_cq_resp *resp, size_t resp_size, uint32_t cmd_flags);
int ibv_cmd_resize_cq(struct ibv_cq *cq, int cqe, struct ibv_resize_cq *cmd, size_t cmd_size,
		      struct ib_uverbs_resize_cq_resp *resp, size_t resp_size);
int ibv_cmd_destroy_cq(struct ibv_cq *cq);

int ibv_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq, struct ibv_srq_init_attr *attr,
		       struct ibv_create_srq *cmd, size_t cmd_size,
		       struct ib_uverbs_create_srq_resp *resp, size_t resp_size);
int ibv_cmd_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *srq_attr, int srq_attr_mask,
		       struct ibv_modify_srq *cmd, size_t cmd_size);
int ibv_cmd_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *srq_attr, struct ibv_query_srq *cmd,
		      size_t cmd_size);
int ibv_cmd_destroy_srq(struct ibv_srq *srq);

int ibv_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr,
		      struct ibv_create_qp *cmd, size_t cmd_size,
		      struct ib_uverbs_create_qp_resp *resp, size_t resp_size);
int ibv_cmd_create_qp_ex(struct ibv_context *context, struct verbs_qp *qp,
			 struct ibv_qp_init_attr_ex *attr_ex, struct ibv_create_qp *cmd, size_t cmd_size,
			 struct ib_uverbs_create_qp_resp *resp, size_t resp_size);
int ibv_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *qp_attr, int attr_mask,
		     struct ibv_qp_init_attr *qp_init_attr, struct ibv_query_qp *cmd, size_t cmd_size);
int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		      struct ibv_modify_qp *cmd, size_t cmd_size);
int ibv_cmd_modify_qp_ex(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
			 struct ibv_modify_qp_ex *cmd, size_t cmd_size,
			 struct ib_uverbs_ex_modify_qp_resp *resp, size_t resp_size);
int ibv_cmd_destroy_qp(struct ibv_qp *qp);

#endif
