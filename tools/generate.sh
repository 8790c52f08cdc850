#!/bin/sh
# Regenerates the Go code of the .proto files. Needs protoc (Debian:
# protobuf-compiler) and, on PATH, the two plugins:
#   go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
#   go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
set -eu
cd "$(dirname "$0")/.."
protoc --go_out=. --go_opt=paths=source_relative meta/metapb/*.proto
protoc --go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative node/nodepb/*.proto
