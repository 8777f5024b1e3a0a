package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/runtime/execution"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrateLock is the advisory key of migrations: constant, so that it holds before anything else exists.
const migrateLock int64 = 0x6e66_6d69_6772_6174 // "nfmigrat"

// daysAhead is how many days of partitions are kept ready (B7).
const daysAhead = 14

// Migration is one numbered step of the schema.
type Migration struct {
	Version  int64
	Name     string
	Checksum [32]byte
	text     string
}

var migrationName = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.sql$`)

// Migrations gives the steps this build knows, ascending and without gap.
var Migrations = sync.OnceValue(func() []Migration {
	all, err := readMigrations(migrationFiles)
	if err != nil {
		panic(err) //nolint:forbidigo // embedded at build time; a test loads it
	}
	return all
})

func readMigrations(files fs.FS) ([]Migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	all := make([]Migration, 0, len(names))
	for _, name := range names {
		parts := migrationName.FindStringSubmatch(strings.TrimPrefix(name, "migrations/"))
		if parts == nil {
			return nil, fmt.Errorf("%s: a migration is called 0001_words.sql", name)
		}
		version, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if version != int64(len(all))+1 {
			return nil, fmt.Errorf("%s: number %d is due", name, len(all)+1)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		all = append(all, Migration{Version: version, Name: parts[2], Checksum: sha256.Sum256(text), text: string(text)})
	}
	return all, nil
}

// Install is what the database says about itself (nf_install).
type Install struct {
	Environment   string
	ID            execution.UUID // part of every advisory key (B5)
	SchemaVersion int64
	MinBuild      int64 // builds below it stop claiming (B8)
	CreatedAt     time.Time
}

// ErrNoSchema says that the database holds no nf schema yet.
var ErrNoSchema = errors.New("the database has no nf schema: run nf db migrate")

// EnvironmentError says that the database belongs to another environment (P13, NF6108).
type EnvironmentError struct{ Stored, Asked string }

func (e *EnvironmentError) Error() string {
	return fmt.Sprintf("this database belongs to environment %q, not %q", e.Stored, e.Asked)
}

// SchemaError says that this build and the schema do not fit (P4). Mend says which command or build helps.
type SchemaError struct{ What, Mend string }

func (e *SchemaError) Error() string { return e.What + ": " + e.Mend }

// environmentName is the rule of environment names (P13, N2).
var environmentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,254}$`)

// Migrate brings the schema up to what this build knows, under a lock of its own, in one transaction: all or nothing. It is safe to
// repeat and safe against others doing the same. A fresh database takes the environment's name; another name later is an
// *EnvironmentError and changes nothing. It also makes the partitions of yesterday to 14 days ahead.
func (s *Store) Migrate(ctx context.Context, build int64, env string) error {
	if !environmentName.MatchString(env) {
		return fmt.Errorf("environment %q: a name is a letter or _, then at most 254 of letters, digits, _ . -", env)
	}
	return s.inOwnTx(ctx, "migrate", 0, func(ctx context.Context, t *Tx) error {
		if _, err := t.exec(ctx, "lock_gate", "", migrateLock); err != nil {
			return err
		}
		done, err := t.applied(ctx)
		if err != nil {
			return err
		}
		if len(done) > 0 {
			if err := t.sameEnvironment(ctx, env); err != nil {
				return err
			}
		}
		ran, err := t.runPending(ctx, done, build)
		if err != nil {
			return err
		}
		if err := t.recordInstall(ctx, env); err != nil {
			return err
		}
		if err := t.keepBallast(ctx, ran); err != nil {
			return err
		}
		_, err = t.exec(ctx, "make_days", "", daysAhead)
		return err
	})
}

// applied gives what nf_migration holds; nothing where the schema is not there yet.
func (t *Tx) applied(ctx context.Context) ([]appliedMigration, error) {
	rows, err := t.query(ctx, "schema_exists", "")
	if err != nil {
		return nil, err
	}
	there, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if !there {
		return nil, nil
	}
	if rows, err = t.query(ctx, "migrations", ""); err != nil {
		return nil, err
	}
	done, err := pgx.CollectRows(rows, pgx.RowToStructByPos[appliedMigration])
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return done, checkMigrations(done)
}

type appliedMigration struct {
	Version   int64
	Name      string
	Checksum  []byte
	Build     int64
	AppliedAt time.Time
}

// checkMigrations holds what has run against what this build knows. Steps that only the database knows are those of a newer build:
// min_build judges them.
func checkMigrations(done []appliedMigration) error {
	known := Migrations()
	for i, m := range done {
		if m.Version != int64(i)+1 {
			return &SchemaError{
				What: fmt.Sprintf("migration %d is missing before %d", i+1, m.Version),
				Mend: "restore the database from a backup",
			}
		}
		if i < len(known) && known[i].Checksum != [32]byte(m.Checksum) {
			return &SchemaError{
				What: fmt.Sprintf("migration %d (%s) was run by build %d with another content", m.Version, m.Name, m.Build),
				Mend: "use the nf that made this database, or a fresh database",
			}
		}
	}
	return nil
}

// runPending runs the steps that the database lacks and says whether there were any.
func (t *Tx) runPending(ctx context.Context, done []appliedMigration, build int64) (bool, error) {
	ran := false
	for _, m := range Migrations() {
		if int(m.Version) <= len(done) {
			continue
		}
		if err := t.abort(fmt.Sprintf("migration %04d", m.Version)); err != nil {
			return false, err
		}
		if err := t.begin(ctx); err != nil {
			return false, err
		}
		// Several statements in one text: the simple protocol, still inside this transaction.
		if _, err := t.conn.PgConn().Exec(ctx, m.text).ReadAll(); err != nil {
			return false, fmt.Errorf("migration %04d_%s: %w", m.Version, m.Name, err)
		}
		if _, err := t.exec(ctx, "migration_insert", "", m.Version, m.Name, m.Checksum[:], build); err != nil {
			return false, err
		}
		ran = true
	}
	return ran, nil
}

// recordInstall writes the row of the installation and its first key, and the version that the schema now has.
func (t *Tx) recordInstall(ctx context.Context, env string) error {
	if _, err := t.exec(ctx, "install_upsert", "", env, int64(len(Migrations()))); err != nil {
		return err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("installation key: %w", err)
	}
	_, err := t.exec(ctx, "install_key_first", "", key)
	return err
}

// keepBallast lays the ballast anew after a migration, and where the planner's numbers are gone (pg_upgrade, a restored dump).
func (t *Tx) keepBallast(ctx context.Context, ran bool) error {
	if !ran {
		rows, err := t.query(ctx, "ballast_gone", "")
		if err != nil {
			return err
		}
		gone, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
		if err != nil {
			return fmt.Errorf("ballast: %w", err)
		}
		if !gone {
			return nil
		}
	}
	_, err := t.exec(ctx, "ballast", "")
	return err
}

func (t *Tx) sameEnvironment(ctx context.Context, env string) error {
	in, err := t.readInstall(ctx)
	if err != nil {
		return err
	}
	if in.Environment != env {
		return &EnvironmentError{Stored: in.Environment, Asked: env}
	}
	return nil
}

func (t *Tx) readInstall(ctx context.Context) (Install, error) {
	rows, err := t.query(ctx, "install", "")
	if Code(err) == "42P01" {
		return Install{}, ErrNoSchema
	}
	if err != nil {
		return Install{}, err
	}
	in, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Install])
	if Code(err) == "42P01" { // where statements are not prepared beforehand
		return Install{}, ErrNoSchema
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return Install{}, &SchemaError{What: "the row of the installation is missing", Mend: "run nf db migrate"}
	}
	if err != nil {
		return Install{}, fmt.Errorf("install: %w", err)
	}
	return in, nil
}

// Install reads what the database says about itself. ErrNoSchema where nothing has been migrated.
func (s *Store) Install(ctx context.Context) (Install, error) {
	var in Install
	err := s.InTx(ctx, Ctl, "install", func(ctx context.Context, t *Tx) (err error) {
		in, err = t.readInstall(ctx)
		return err
	})
	if err != nil {
		return Install{}, err
	}
	s.install.Store(&in)
	return in, nil
}

// InstallID gives the id of the installation, read once and kept: it never changes.
func (s *Store) InstallID(ctx context.Context) (execution.UUID, error) {
	if in := s.install.Load(); in != nil {
		return in.ID, nil
	}
	in, err := s.Install(ctx)
	return in.ID, err
}

// InstallKeys gives the keys that sign lease tokens, newest first: the first signs, all verify.
func (s *Store) InstallKeys(ctx context.Context) ([]InstallKey, error) {
	var keys []InstallKey
	err := s.InTx(ctx, Ctl, "install-keys", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "install_keys", "")
		if err != nil {
			return err
		}
		if keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[InstallKey]); err != nil {
			return fmt.Errorf("install keys: %w", err)
		}
		return nil
	})
	return keys, err
}

// InstallKey is one key of the installation (32 bytes).
type InstallKey struct {
	No  int32
	Key []byte
}

// SchemaStatus is what `nf db status` shows.
type SchemaStatus struct {
	Install Install
	Applied []AppliedMigration
	Pending []Migration // known to this build, not run yet
	Newer   []int64     // run by a newer build
	Days    Days
}

// AppliedMigration is a step that has run.
type AppliedMigration struct {
	Version   int64
	Name      string
	Build     int64
	AppliedAt time.Time
}

// Days says which days of history have partitions. First and Last are zero where there are none.
type Days struct {
	First, Last time.Time
	Ahead       int // whole days after today
}

// Fits says whether this build may work on the schema (P4): nothing is pending and min_build is not above it.
func (st SchemaStatus) Fits(build int64) error {
	if len(st.Pending) > 0 {
		return &SchemaError{
			What: fmt.Sprintf("the schema stands at %d, this nf needs %d", len(st.Applied), len(Migrations())),
			Mend: "run nf db migrate",
		}
	}
	if build < st.Install.MinBuild {
		return &SchemaError{
			What: fmt.Sprintf("this nf is build %d, the schema asks for build %d or newer", build, st.Install.MinBuild),
			Mend: "upgrade nf",
		}
	}
	return nil
}

// SchemaStatus reads what has been migrated. ErrNoSchema where nothing has.
func (s *Store) SchemaStatus(ctx context.Context) (SchemaStatus, error) {
	var st SchemaStatus
	err := s.InTx(ctx, Ctl, "schema-status", func(ctx context.Context, t *Tx) error {
		done, err := t.applied(ctx)
		if err != nil {
			return err
		}
		if len(done) == 0 {
			return ErrNoSchema
		}
		if st.Install, err = t.readInstall(ctx); err != nil {
			return err
		}
		for _, m := range done {
			st.Applied = append(st.Applied, AppliedMigration{m.Version, m.Name, m.Build, m.AppliedAt.UTC()})
			if int(m.Version) > len(Migrations()) {
				st.Newer = append(st.Newer, m.Version)
			}
		}
		if len(done) < len(Migrations()) {
			st.Pending = Migrations()[len(done):]
		}
		st.Days, err = t.days(ctx)
		return err
	})
	return st, err
}

func (t *Tx) days(ctx context.Context) (Days, error) {
	rows, err := t.query(ctx, "days", "")
	if err != nil {
		return Days{}, err
	}
	d, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Days, error) {
		var first, last *time.Time
		var ahead int32
		err := row.Scan(&first, &last, &ahead)
		out := Days{Ahead: int(ahead)}
		if first != nil {
			out.First, out.Last = *first, *last
		}
		return out, err
	})
	if err != nil {
		return Days{}, fmt.Errorf("days: %w", err)
	}
	return d, nil
}

// MakeDays makes the partitions of yesterday to 14 days ahead and gives how many tables it made. A duty calls it hourly.
func (s *Store) MakeDays(ctx context.Context) (int, error) {
	var made int64
	err := s.InTx(ctx, Ctl, "make-days", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "make_days", "", daysAhead)
		if err != nil {
			return err
		}
		made, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		return err
	})
	return int(made), err
}

// MakeDay makes the partitions of the day that an id names, after an insert was refused with 23514 (B7). Only days from yesterday to the
// day after the last one kept ahead are made; others are refused.
func (s *Store) MakeDay(ctx context.Context, id execution.UUID) error {
	return s.InTx(ctx, Ctl, "make-day", func(ctx context.Context, t *Tx) error {
		n, err := t.exec(ctx, "day_of_id_make", "", id, daysAhead+1)
		if err == nil && n == 0 {
			return fmt.Errorf("execution %s: its day is not near today", id)
		}
		return err
	})
}
