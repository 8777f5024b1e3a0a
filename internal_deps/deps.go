// Package internal_deps holds module requirements until the packages that use them exist. It is removed before the first release.
package internal_deps

import (
	_ "github.com/agnivade/levenshtein"
	_ "github.com/bufbuild/protocompile"
	_ "github.com/hashicorp/go-retryablehttp"
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/santhosh-tekuri/jsonschema/v5"
	_ "github.com/stretchr/testify/require"
	_ "github.com/urfave/cli/v2"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/types/dynamicpb"
	_ "gopkg.in/yaml.v3"
	_ "pgregory.net/rapid"
)
