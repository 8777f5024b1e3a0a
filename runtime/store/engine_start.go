package store

import (
	"cmp"
	"context"
	"slices"

	"nf/runtime/execution"
)

// IdemKey is a caller's idempotency key with the execution it would name and a hash of what was asked (contract 4.2).
type IdemKey struct {
	NS   int32
	Key  string
	Exec execution.UUID
	Hash [32]byte
}

// ClaimIdem inserts the keys that are new, in key order (L0): one under way elsewhere is waited for. It gives those that were there before,
// with their execution and hash.
func (t *Tx) ClaimIdem(ctx context.Context, keys []IdemKey) (known []IdemKey, err error) {
	slices.SortFunc(keys, func(a, b IdemKey) int { return cmp.Or(cmp.Compare(a.NS, b.NS), cmp.Compare(a.Key, b.Key)) })
	in := newTable("engine_idem_in", oI32, oText, oUUID, oByte)
	for _, k := range keys {
		in.cols[0].i32(k.NS)
		in.cols[1].text(k.Key)
		in.cols[2].uuid(k.Exec)
		in.cols[3].bytes(k.Hash[:])
	}
	type name struct {
		ns  int32
		key string
	}
	fresh := map[name]bool{}
	p := t.pipeline()
	p.queue(in.name, "", in.args, reader(func(r *row) error {
		fresh[name{r.i32(), r.text()}] = true
		return nil
	}))
	if err := p.send(ctx); err != nil {
		return nil, err
	}
	var old []IdemKey
	for _, k := range keys {
		if !fresh[name{k.NS, k.Key}] {
			old = append(old, k)
		}
	}
	if len(old) == 0 {
		return nil, nil
	}
	return t.Idem(ctx, old)
}

// Idem reads keys; those without a row are left out.
func (t *Tx) Idem(ctx context.Context, keys []IdemKey) ([]IdemKey, error) {
	k := newTable("engine_idem_get", oI32, oText)
	for _, key := range keys {
		k.cols[0].i32(key.NS)
		k.cols[1].text(key.Key)
	}
	var out []IdemKey
	p := t.pipeline()
	p.queue(k.name, "", k.args, reader(func(r *row) error {
		key := IdemKey{NS: r.i32(), Key: r.text(), Exec: r.uuid()}
		copy(key.Hash[:], r.bytes())
		out = append(out, key)
		return nil
	}))
	return out, p.send(ctx)
}

// DropIdem deletes keys that this transaction inserted for starts that were refused after all.
func (t *Tx) DropIdem(ctx context.Context, keys []IdemKey) error {
	if len(keys) == 0 {
		return nil
	}
	k := newTable("engine_idem_out", oI32, oText)
	for _, key := range keys {
		k.cols[0].i32(key.NS)
		k.cols[1].text(key.Key)
	}
	p := t.pipeline()
	p.queue(k.name, "", k.args, nil)
	return p.send(ctx)
}
