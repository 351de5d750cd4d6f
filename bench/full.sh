#!/usr/bin/env bash
# Generates bench/results: the whole comparison, in parts of a few minutes each, which are merged
# into one report. Parts can be repeated separately:
#
#	bench/full.sh                 all parts
#	bench/full.sh fill quiesced   these parts
#
# MEASURE is prepended to each part's command, for example to reserve the machine; DB is the
# directory of the databases between parts, some 3 GB; TAGS is for go build.
set -euo pipefail
cd "$(dirname "$0")"
DB=${DB:-${TMPDIR:-/tmp}/sift-bench-full}
OUT=${OUT:-results}
TAGS=${TAGS:-rocksdb,leveldb}
mkdir -p "$DB"
go build -tags "$TAGS" -o "$DB/bench" .

one=sift,pebble,goleveldb,badger,bbolt,rocksdb,leveldb
all=sift,'sift:ribbon(7)',pebble,pebble-large,'pebble:sift-ribbon(10)',goleveldb,goleveldb-large,badger,bbolt,rocksdb,rocksdb-mmap,'rocksdb:ribbon(10)',leveldb
if [[ $TAGS != *rocksdb* ]]; then
	one=${one/,rocksdb/} all=${all/,rocksdb,rocksdb-mmap,rocksdb:ribbon(10)/}
fi
if [[ $TAGS != *leveldb* ]]; then
	one=${one/,leveldb/} all=${all/,leveldb/}
fi

bench() { ${MEASURE:-} "$DB/bench" --as bench/full.sh --merge --out "$OUT" "$@"; }
stores() { bench --rounds 1 --passes 3 --reads 100000 "$@"; }
kept() { stores --use_existing_db --db "$DB/stores" "$@"; }
# absent looks up more keys: a fast store needs only 0.1 s for them.
absent() { kept --reads 500000 --engines "$all" --benchmarks readmissing; }

part() {
	case $1 in
	write) stores --engines "$one" --benchmarks fillseq,fillsync ;;
	fill) stores --engines "$all" --benchmarks fillrandom --keep --db "$DB/stores" ;;
	quiesced)
		absent
		kept --engines "$all" --benchmarks readrandom,seekrandom,readseq,open
		;;
	compact) kept --engines "$all" --benchmarks freshen,readmissing,compact ;;
	compacted)
		absent
		kept --engines "$all" --benchmarks readrandom,seekrandom,readseq,readreverse
		;;
	absent) kept --engines "$one" --benchmarks readhot,multiread,multimissing,absent-outside,absent-zipf,absent-mix10,absent-mix50,absent-mix90 ;;
	mixed) kept --engines "$one" --benchmarks readwhilewriting,overwrite,ycsb,deleterandom,absent-deleted ;;
	sustained) kept --engines "${one//badger,bbolt,/}" --benchmarks sustained ;;
	filters) bench --parts filters --rounds 1 ;;
	sweep) bench --parts sweep ;;
	growth) bench --parts growth --engines "${one//badger,bbolt,/}" --growth 100000,300000,1000000,3000000,10000000 --reads 1000000 ;; # half of them
	growth-small) bench --parts growth --engines badger,bbolt --growth 100000,300000,1000000 --reads 1000000 ;;
	plan) bench --parts plan ;;
	*)
		echo "no part $1" >&2
		exit 1
		;;
	esac
}

if [ $# -eq 0 ]; then
	rm -rf "$DB/stores" "$OUT/result.json"
	set -- write fill quiesced compact compacted absent mixed sustained filters sweep growth growth-small plan
fi
for p; do
	part "$p"
done
