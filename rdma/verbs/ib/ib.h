// The few calls of libibverbs that moving blocks takes, with the hot ones made
// once per batch. The library is loaded at run time; its headers are needed at
// build time only. Functions return 0 or an errno unless they say otherwise.
#ifndef P2PFS_IB_H
#define P2PFS_IB_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#undef ibv_reg_mr
#undef ibv_query_port

struct ib_api {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	const char *(*get_device_name)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *);
	int (*destroy_comp_channel)(struct ibv_comp_channel *);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
	int (*destroy_cq)(struct ibv_cq *);
	int (*get_cq_event)(struct ibv_comp_channel *, struct ibv_cq **, void **);
	void (*ack_cq_events)(struct ibv_cq *, unsigned int);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*destroy_qp)(struct ibv_qp *);
	const char *(*wc_status_str)(enum ibv_wc_status);
};

struct ib_device {
	struct ib_api *api;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
};

struct ib_limits {
	uint64_t max_mr_size;
	int max_mr, max_qp, max_qp_wr, max_cqe;
	int reads_out, reads_in; // READs in flight from and towards one connection
};

struct ib_port {
	int active, mtu, ethernet;
	uint16_t lid;
};

// One end of a reliable connection, with its completions.
struct ib_queue {
	struct ib_device *dev;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

struct ib_path {
	uint32_t qpn, psn; // of the other end
	uint32_t own_psn;
	uint16_t lid; // of the other end
	uint8_t port, gid_index, mtu;
	uint8_t reads_out, reads_in;
	uint8_t gid[16]; // of the other end
};

struct ib_read {
	uint64_t id, local, remote;
	uint32_t lkey, rkey, len, pad;
};

struct ib_done {
	uint64_t id;
	int32_t status, pad; // 0 is success; else see ib_status
};

// Returns NULL, or what is missing.
const char *ib_load(struct ib_api *api);
// Writes the names of the devices, each with a newline after it. Returns how
// many bytes that takes, or a negative errno.
long ib_names(struct ib_api *api, char *buf, size_t size);
int ib_open(struct ib_api *api, const char *name, struct ib_device *dev);
int ib_close(struct ib_device *dev);
int ib_query(struct ib_device *dev, struct ib_limits *out);
int ib_query_port(struct ib_device *dev, uint8_t port, struct ib_port *out);
int ib_query_gid(struct ib_device *dev, uint8_t port, int index, uint8_t gid[16]);
// Registers memory: for others to READ, or for own READs to write to.
int ib_register(struct ib_device *dev, void *p, size_t n, int target, struct ibv_mr **out);
int ib_deregister(struct ib_device *dev, struct ibv_mr *mr);
int ib_queue_open(struct ib_device *dev, int depth, struct ib_queue *q);
int ib_queue_connect(struct ib_queue *q, const struct ib_path *p);
int ib_queue_read(struct ib_queue *q, const struct ib_read *reads, int n, int *posted);
// Takes completions without waiting. Returns how many, or a negative errno;
// after -EAGAIN the channel becomes readable with the next one.
int ib_queue_reap(struct ib_queue *q, struct ib_done *out, int most);
int ib_queue_fail(struct ib_queue *q);
void ib_queue_close(struct ib_queue *q);
const char *ib_status(struct ib_api *api, int status);

#endif
