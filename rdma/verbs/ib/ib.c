//go:build linux && cgo && rdma

#include "ib.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { batch = 32 };

// How long the other end may be silent: 4.096 us * 2^14 each time, and so many
// times again. Not 7 times: soft-RoCE takes that for ever.
enum { ack_timeout = 14, retries = 6, rnr_timer = 12 };

static int failed(void) { return errno ? errno : EIO; }

const char *ib_load(struct ib_api *api) {
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) return dlerror();
#define LOAD(f) \
	if (!(*(void **)&api->f = dlsym(lib, "ibv_" #f))) return dlerror()
	LOAD(get_device_list);
	LOAD(free_device_list);
	LOAD(get_device_name);
	LOAD(open_device);
	LOAD(close_device);
	LOAD(query_device);
	LOAD(query_port);
	LOAD(query_gid);
	LOAD(alloc_pd);
	LOAD(dealloc_pd);
	LOAD(reg_mr);
	LOAD(dereg_mr);
	LOAD(create_comp_channel);
	LOAD(destroy_comp_channel);
	LOAD(create_cq);
	LOAD(destroy_cq);
	LOAD(get_cq_event);
	LOAD(ack_cq_events);
	LOAD(create_qp);
	LOAD(modify_qp);
	LOAD(destroy_qp);
	LOAD(wc_status_str);
#undef LOAD
	return NULL;
}

long ib_names(struct ib_api *api, char *buf, size_t size) {
	int n = 0;
	size_t used = 0;
	errno = 0;
	struct ibv_device **list = api->get_device_list(&n);
	if (!list) return -failed();
	for (int i = 0; i < n; i++) {
		const char *name = api->get_device_name(list[i]);
		size_t len = strlen(name);
		if (used + len + 1 <= size) {
			memcpy(buf + used, name, len);
			buf[used + len] = '\n';
		}
		used += len + 1;
	}
	api->free_device_list(list);
	return (long)used;
}

int ib_open(struct ib_api *api, const char *name, struct ib_device *dev) {
	int n = 0, rc = ENODEV;
	memset(dev, 0, sizeof *dev);
	dev->api = api;
	errno = 0;
	struct ibv_device **list = api->get_device_list(&n);
	if (!list) return failed();
	for (int i = 0; i < n; i++) {
		if (strcmp(api->get_device_name(list[i]), name)) continue;
		errno = 0;
		dev->ctx = api->open_device(list[i]);
		rc = dev->ctx ? 0 : failed();
		break;
	}
	api->free_device_list(list);
	if (rc) return rc;
	errno = 0;
	dev->pd = api->alloc_pd(dev->ctx);
	if (!dev->pd) {
		rc = failed();
		api->close_device(dev->ctx);
		dev->ctx = NULL;
	}
	return rc;
}

int ib_close(struct ib_device *dev) {
	int rc = dev->api->dealloc_pd(dev->pd);
	errno = 0;
	if (dev->api->close_device(dev->ctx)) rc = failed();
	dev->pd = NULL;
	dev->ctx = NULL;
	return rc;
}

int ib_query(struct ib_device *dev, struct ib_limits *out) {
	struct ibv_device_attr a;
	memset(&a, 0, sizeof a);
	int rc = dev->api->query_device(dev->ctx, &a);
	if (rc) return rc;
	out->max_mr_size = a.max_mr_size;
	out->max_mr = a.max_mr;
	out->max_qp = a.max_qp;
	out->max_qp_wr = a.max_qp_wr;
	out->max_cqe = a.max_cqe;
	out->reads_out = a.max_qp_init_rd_atom;
	out->reads_in = a.max_qp_rd_atom;
	return 0;
}

int ib_query_port(struct ib_device *dev, uint8_t port, struct ib_port *out) {
	struct ibv_port_attr a;
	memset(&a, 0, sizeof a);
	int rc = dev->api->query_port(dev->ctx, port, &a);
	if (rc) return rc;
	out->active = a.state == IBV_PORT_ACTIVE;
	out->mtu = a.active_mtu;
	out->ethernet = a.link_layer == IBV_LINK_LAYER_ETHERNET;
	out->lid = a.lid;
	return 0;
}

int ib_query_gid(struct ib_device *dev, uint8_t port, int index, uint8_t gid[16]) {
	union ibv_gid g;
	errno = 0;
	if (dev->api->query_gid(dev->ctx, port, index, &g)) return failed();
	memcpy(gid, g.raw, 16);
	return 0;
}

int ib_register(struct ib_device *dev, void *p, size_t n, int target, struct ibv_mr **out) {
	errno = 0;
	*out = dev->api->reg_mr(dev->pd, p, n, target ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_REMOTE_READ);
	return *out ? 0 : failed();
}

int ib_deregister(struct ib_device *dev, struct ibv_mr *mr) { return dev->api->dereg_mr(mr); }

int ib_queue_open(struct ib_device *dev, int depth, struct ib_queue *q) {
	struct ibv_qp_init_attr a;
	int rc;
	memset(q, 0, sizeof *q);
	q->dev = dev;
	errno = 0;
	q->channel = dev->api->create_comp_channel(dev->ctx);
	if (!q->channel) return failed();
	int flags = fcntl(q->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(q->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) goto fail;
	errno = 0;
	q->cq = dev->api->create_cq(dev->ctx, depth + 1, NULL, q->channel, 0);
	if (!q->cq) goto fail;
	memset(&a, 0, sizeof a);
	a.send_cq = a.recv_cq = q->cq;
	a.cap.max_send_wr = depth;
	a.cap.max_recv_wr = 1;
	a.cap.max_send_sge = a.cap.max_recv_sge = 1;
	a.qp_type = IBV_QPT_RC;
	a.sq_sig_all = 1;
	errno = 0;
	q->qp = dev->api->create_qp(dev->pd, &a);
	if (q->qp) return 0;
fail:
	rc = failed();
	ib_queue_close(q);
	return rc;
}

int ib_queue_connect(struct ib_queue *q, const struct ib_path *p) {
	struct ibv_qp_attr a;
	int rc;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_INIT;
	a.port_num = p->port;
	a.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	rc = q->dev->api->modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (rc) return rc;

	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = p->mtu;
	a.dest_qp_num = p->qpn;
	a.rq_psn = p->psn;
	a.max_dest_rd_atomic = p->reads_in;
	a.min_rnr_timer = rnr_timer;
	a.ah_attr.dlid = p->lid;
	a.ah_attr.port_num = p->port;
	a.ah_attr.is_global = 1;
	a.ah_attr.grh.hop_limit = 64;
	a.ah_attr.grh.sgid_index = p->gid_index;
	memcpy(a.ah_attr.grh.dgid.raw, p->gid, 16);
	rc = q->dev->api->modify_qp(q->qp, &a,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (rc) return rc;

	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = ack_timeout;
	a.retry_cnt = retries;
	a.rnr_retry = 7;
	a.sq_psn = p->own_psn;
	a.max_rd_atomic = p->reads_out;
	return q->dev->api->modify_qp(q->qp, &a,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int ib_queue_read(struct ib_queue *q, const struct ib_read *reads, int n, int *posted) {
	struct ibv_send_wr wr[batch], *bad;
	struct ibv_sge sge[batch];
	*posted = 0;
	while (*posted < n) {
		int m = n - *posted < batch ? n - *posted : batch;
		memset(wr, 0, sizeof wr[0] * m);
		for (int i = 0; i < m; i++) {
			const struct ib_read *r = &reads[*posted + i];
			sge[i] = (struct ibv_sge){.addr = r->local, .length = r->len, .lkey = r->lkey};
			wr[i].wr_id = r->id;
			wr[i].next = i + 1 < m ? &wr[i + 1] : NULL;
			wr[i].sg_list = &sge[i];
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_RDMA_READ;
			wr[i].wr.rdma.remote_addr = r->remote;
			wr[i].wr.rdma.rkey = r->rkey;
		}
		bad = NULL;
		int rc = ibv_post_send(q->qp, wr, &bad);
		if (rc) {
			// Without a word on which one failed, any may be on its way.
			*posted += bad ? (int)(bad - wr) : m;
			return rc;
		}
		*posted += m;
	}
	return 0;
}

static int poll_some(struct ib_queue *q, struct ib_done *out, int most) {
	struct ibv_wc wc[batch];
	int n = ibv_poll_cq(q->cq, most < batch ? most : batch, wc);
	for (int i = 0; i < n; i++) {
		out[i].id = wc[i].wr_id;
		out[i].status = wc[i].status;
	}
	return n < 0 ? -EIO : n;
}

int ib_queue_reap(struct ib_queue *q, struct ib_done *out, int most) {
	struct ibv_cq *cq;
	void *ctx;
	int n = poll_some(q, out, most);
	if (n) return n;
	for (;;) {
		errno = 0;
		if (q->dev->api->get_cq_event(q->channel, &cq, &ctx)) {
			if (errno == EAGAIN || errno == EINTR) break;
			return -failed();
		}
		q->dev->api->ack_cq_events(cq, 1);
	}
	// Armed first, then looked at once more: what completes in between is seen.
	int rc = ibv_req_notify_cq(q->cq, 0);
	if (rc) return -rc;
	n = poll_some(q, out, most);
	return n ? n : -EAGAIN;
}

int ib_queue_fail(struct ib_queue *q) {
	struct ibv_qp_attr a;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_ERR;
	return q->dev->api->modify_qp(q->qp, &a, IBV_QP_STATE);
}

void ib_queue_close(struct ib_queue *q) {
	int saved = errno;
	if (q->qp) q->dev->api->destroy_qp(q->qp);
	if (q->cq) q->dev->api->destroy_cq(q->cq);
	if (q->channel) q->dev->api->destroy_comp_channel(q->channel);
	memset(q, 0, sizeof *q);
	errno = saved;
}

const char *ib_status(struct ib_api *api, int status) { return api->wc_status_str((enum ibv_wc_status)status); }
