package tcp

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/p2pfs/p2pfs/chunk"
)

const (
	pathRoot   = "/p2pfs/"
	pathPrefix = pathRoot + "v" + protoVersion + "/objects/"
	pathBlocks = "/blocks/"
)

var (
	errPath    = errors.New("malformed path")
	errVersion = errors.New("unknown protocol version")
)

// blockPath is the inverse of parsePath.
func blockPath(object chunk.ObjectID, index int) string {
	return pathPrefix + object.String() + pathBlocks + strconv.Itoa(index)
}

// parsePath reads the path of a request as it stood on the wire. There is
// exactly one path for each block.
func parsePath(p string) (chunk.ObjectID, int, error) {
	rest, ok := strings.CutPrefix(p, pathPrefix)
	if !ok {
		if strings.HasPrefix(p, pathRoot+"v") {
			return chunk.ObjectID{}, 0, errVersion
		}
		return chunk.ObjectID{}, 0, errPath
	}
	id, number, ok := strings.Cut(rest, pathBlocks)
	if !ok || strings.ToLower(id) != id {
		return chunk.ObjectID{}, 0, errPath
	}
	object, err := chunk.ParseObjectID(id)
	if err != nil {
		return chunk.ObjectID{}, 0, errPath
	}
	index, err := parseDecimal(number, math.MaxInt32)
	if err != nil {
		return chunk.ObjectID{}, 0, fmt.Errorf("%w: block number", errPath)
	}
	return object, int(index), nil
}

// parseDecimal reads a number from 0 to most, written in the one shortest way.
func parseDecimal(s string, most int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > most || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%.24q is not a number from 0 to %d", s, most)
	}
	return n, nil
}
