package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// MinConns is the smallest accepted Config.MaxConns, DefaultConns the one taken for 0 (contract 5.4).
const (
	MinConns     = 8
	DefaultConns = 20
)

// oldestServer is the oldest server that is supported (P2), as server_version_num counts.
const oldestServer = 150_000

// Config says how to reach one environment's database.
type Config struct {
	// URL is a connection URL or keyword/value text as libpq takes it. A host that is neither a socket nor loopback is
	// asked for TLS (sslmode=require) when neither the URL nor PGSSLMODE says otherwise (contract 5.4).
	URL string
	// MaxConns bounds the connections of the process: 3 for beats and duties, 1 for the listener, the rest in halves for work
	// and requests. 0 = DefaultConns; below MinConns is an error.
	MaxConns int
	// AppName is shown by the server as application_name.
	AppName string
	// Pooler says that a transaction pooler stands between: settings go with each transaction instead of with the connection.
	// Found out by itself when the pooler refuses startup parameters.
	Pooler bool
}

// What each lane asks of its sessions (B8), milliseconds. A call has a client deadline one second above.
var laneLimits = [3]struct{ statement, transaction time.Duration }{
	Hot: {5 * time.Second, 15 * time.Second},
	API: {10 * time.Second, 15 * time.Second},
	Ctl: {30 * time.Second, 60 * time.Second},
}

// lockTimeout bounds a wait for a lock where a transaction says nothing else (B8).
const lockTimeout = 500 * time.Millisecond

// heldPlanner holds the planner still (B1.4): point access only, one plan a statement.
func heldPlanner() map[string]string {
	return map[string]string{
		"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off",
		"plan_cache_mode": "force_generic_plan", "max_parallel_workers_per_gather": "0",
	}
}

// laneSettings gives the session settings of a lane for a server of the given version.
func laneSettings(lane Lane, version int) map[string]string {
	all := heldPlanner()
	limits := laneLimits[lane]
	all["lock_timeout"] = millis(lockTimeout)
	all["statement_timeout"] = millis(limits.statement)
	all["idle_in_transaction_session_timeout"] = "10000"
	if version >= 170_000 {
		all["transaction_timeout"] = millis(limits.transaction)
	}
	return all
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// poolSizes splits the connections of a process over the lanes.
func poolSizes(total int) [3]int32 {
	rest := total - 4 // 3 ctl, 1 listener
	hot := min(max(2*runtime.NumCPU(), 6), 16, (rest+1)/2)
	return [3]int32{Hot: int32(hot), API: int32(min(16, rest-hot)), Ctl: 3} //nolint:gosec // at most 16
}

// Open connects to the database and says what is wrong with it, if anything: unreachable, older than Postgres 15, or read-only. It
// neither needs nor makes tables. The caller closes the Store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.MaxConns == 0 {
		cfg.MaxConns = DefaultConns
	}
	if cfg.MaxConns < MinConns {
		return nil, fmt.Errorf("at least %d database connections are needed, %d are allowed", MinConns, cfg.MaxConns)
	}
	base, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.AppName != "" {
		base.RuntimeParams["application_name"] = cfg.AppName
	}
	version, err := probe(ctx, base)
	if err != nil {
		return nil, err
	}
	s := &Store{base: base, version: version, pooler: cfg.Pooler}
	if !s.pooler {
		s.pooler, err = refusesParameters(ctx, base, laneSettings(Hot, version))
		if err != nil {
			return nil, err
		}
	}
	for lane, size := range poolSizes(cfg.MaxConns) {
		if s.pools[lane], err = s.openPool(ctx, Lane(lane), size); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Close closes every connection; it waits for those in use.
func (s *Store) Close() {
	for _, pool := range s.pools {
		if pool != nil {
			pool.Close()
		}
	}
}

// connConfig gives the settings of one connection: those of the URL and, where no pooler stands between, the given ones.
func (s *Store) connConfig(settings map[string]string) *pgx.ConnConfig {
	cfg := s.base.Copy()
	if s.pooler {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // names of prepared statements do not survive a pooler
		return cfg
	}
	maps.Copy(cfg.RuntimeParams, settings)
	return cfg
}

func (s *Store) openPool(ctx context.Context, lane Lane, size int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, fmt.Errorf("database settings: %w", err)
	}
	cfg.ConnConfig = s.connConfig(laneSettings(lane, s.version))
	cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite // never work on a demoted server
	cfg.MaxConns = size
	cfg.MinConns = 0
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.MaxConnLifetime = time.Hour
	cfg.MaxConnLifetimeJitter = 5 * time.Minute
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		registerArrays(conn.TypeMap())
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	return pool, nil
}

// parseURL reads a connection URL and applies the rule of sslmode and the client's own time-outs.
func parseURL(text string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err) // pgx leaves the password out
	}
	if !saysSSLMode(text) && leavesMachine(cfg) {
		if cfg, err = pgx.ParseConfig(withSSLMode(text)); err != nil {
			return nil, fmt.Errorf("database URL: %w", err)
		}
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	cfg.DialFunc = dialer().DialContext
	if cfg.RuntimeParams["timezone"] == "" {
		cfg.RuntimeParams["timezone"] = "UTC"
	}
	return cfg, nil
}

func saysSSLMode(text string) bool {
	if os.Getenv("PGSSLMODE") != "" || os.Getenv("PGSERVICE") != "" { //nolint:forbidigo // libpq's own variables, which pgx reads too
		return true
	}
	if u, err := url.Parse(text); err == nil && isURL(text) {
		return u.Query().Has("sslmode")
	}
	return strings.Contains(text, "sslmode")
}

func isURL(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

func withSSLMode(text string) string {
	if !isURL(text) {
		return text + " sslmode=require"
	}
	if strings.Contains(text, "?") {
		return text + "&sslmode=require"
	}
	return text + "?sslmode=require"
}

// leavesMachine says whether any host of the list is neither a socket folder nor loopback.
func leavesMachine(cfg *pgx.ConnConfig) bool {
	hosts := []string{cfg.Host}
	for _, f := range cfg.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, host := range hosts {
		if network, _ := pgconn.NetworkAddress(host, cfg.Port); network == "unix" || strings.EqualFold(host, "localhost") {
			continue
		}
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			return true
		}
	}
	return false
}

// probe opens one plain connection and learns the server's version.
func probe(ctx context.Context, base *pgx.ConnConfig) (int, error) {
	conn, err := pgx.ConnectConfig(ctx, base.Copy())
	if err != nil {
		return 0, fmt.Errorf("database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	version := versionNumber(conn.PgConn().ParameterStatus("server_version"))
	if version < oldestServer {
		return 0, fmt.Errorf("database: PostgreSQL 15 or newer is needed, this server is %s", conn.PgConn().ParameterStatus("server_version"))
	}
	return version, nil
}

// versionNumber reads "15.18 (Debian …)" or "17beta1" as 150018 and 170000.
func versionNumber(text string) int {
	major := leadingInt(text)
	minor := 0
	if rest := strings.TrimPrefix(text, strconv.Itoa(major)); strings.HasPrefix(rest, ".") {
		minor = leadingInt(rest[1:])
	}
	return major*10_000 + minor
}

func leadingInt(text string) int {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(text[:end])
	return n
}

// refusesParameters says whether what answers is a pooler that takes no startup parameters (08P01 names them).
func refusesParameters(ctx context.Context, base *pgx.ConnConfig, settings map[string]string) (bool, error) {
	cfg := base.Copy()
	maps.Copy(cfg.RuntimeParams, settings)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "08P01" {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("database: %w", err)
	}
	return false, conn.Close(context.WithoutCancel(ctx))
}
