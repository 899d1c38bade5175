import { error } from './rpc/error.ts'
import { duplicate, wrongId } from './rpc/identity.ts'
import { late } from './rpc/late.ts'
import { malformed } from './rpc/malformed.ts'
import { headerMismatch, versionMismatch } from './rpc/refusal.ts'
import { reorder } from './rpc/reorder.ts'

/** Faults of the JSON-RPC that replies are made of. */
export const rpcFaults = {
  'rpc.error': error,
  'rpc.malformed': malformed,
  'rpc.wrong_id': wrongId,
  'rpc.duplicate': duplicate,
  'rpc.late': late,
  'rpc.reorder': reorder,
  'rpc.version_mismatch': versionMismatch,
  'rpc.header_mismatch': headerMismatch,
}
