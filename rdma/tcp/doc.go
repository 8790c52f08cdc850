// Package tcp moves blocks over HTTP/1.1 on kept TCP connections: a Handler
// that serves them with sendfile, and a Client that reads them into memory it
// owns, summing while the bytes are hot.
//
// # Wire protocol, version 1
//
// One request asks for one block. The version stands in the path and in
// P2pfs-Proto:
//
//	GET /p2pfs/v1/objects/<object: 32 lower-case hexadecimal digits>/blocks/<index: decimal> HTTP/1.1
//	P2pfs-Proto: 1
//	P2pfs-Cluster, P2pfs-Node, P2pfs-From: 32 hexadecimal digits each
//	P2pfs-Incarnation: decimal; of the node it is meant for
//	P2pfs-Token: 64 hexadecimal digits; see rdma.Auth
//	P2pfs-Demand: 1, if somebody waits for the block; optional
//
// Every answer carries P2pfs-Proto. A block is
//
//	HTTP/1.1 200 OK
//	P2pfs-Node, P2pfs-Incarnation: who answers
//	P2pfs-Block: <object>/<index>
//	P2pfs-Sum: 8 hexadecimal digits, CRC-32C of the body
//	Content-Length: exact
//
// and a block whose every byte is zero is the same with Content-Length 0 and,
// instead of the sum, P2pfs-Zero: its length. The server holds back the end of
// a block until it has seen that its source did not change meanwhile, and
// breaks the connection if it did: a body of full length is never a clean end
// of changed bytes.
//
// Anything else is a status with a short text:
//
//	400 malformed request          404 block not held
//	401 no claim                   409 object is damaged
//	403 claim not accepted         410 registered source has changed
//	405 not GET                    421 meant for another node, incarnation or cluster
//	429 busy; P2pfs-Retry: milliseconds until asking again is worth while, with
//	    " sending" after it if the block goes to another node just now
//	500 reading failed             501 another protocol version
//	503 shutting down
//
// Chunked answers, compression and redirects are refused by the client.
package tcp
