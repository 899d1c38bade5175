import type { Call } from '../../mesh/call.ts'
import type { Scope } from '../../mesh/policy.ts'
import { metaOf } from '../../protocol/meta.ts'
import { isTask } from '../state/final-result.ts'
import { argumentsOf, digestOf, identityOf, type Sharing } from '../state/sameness.ts'

/** Where a caller names the key of a call, in `params._meta`: a string of 1 to 256 characters. */
export const IDEMPOTENCY_KEY = 'dev.breakwater/idempotency-key'

const LONGEST = 256

export interface Key {
  /** Names the tool, the identity for which it runs, and the caller's key. */
  readonly id: string
  /** Names what is to be run: one key stands for one of these. */
  readonly fingerprint: string
}

export interface InvalidKey {
  readonly problem: string
}

export function isInvalid(key: Key | InvalidKey): key is InvalidKey {
  return 'problem' in key
}

/** Which calls have a key, and among whose calls it counts. */
export interface KeySettings {
  readonly key: 'explicit' | 'auto'
  readonly scope: Sharing
}

/** The key of a tool call; undefined when it has none. */
export function keyOf(
  call: Call,
  { key: mode, scope: sharing }: KeySettings,
  scope: Pick<Scope, 'effectOf'>,
): Key | InvalidKey | undefined {
  const named = metaOf(call.message.value, 'params', IDEMPOTENCY_KEY)
  if (named === undefined) {
    // To join calls that only read would be a cache, and that is for somebody else to ask for.
    if (mode === 'explicit' || scope.effectOf(call) === 'read_only') return undefined
    const fingerprint = fingerprintOf(call)
    return { id: idOf(call, sharing, 'auto', fingerprint), fingerprint }
  }
  if (typeof named !== 'string' || named === '' || named.length > LONGEST)
    return { problem: `an idempotency key has to be a string of 1 to ${LONGEST} characters` }
  return { id: idOf(call, sharing, 'explicit', named), fingerprint: fingerprintOf(call) }
}

/** A digest, because names of tools may be as long as their caller likes, and keys and headers may be secrets. */
function idOf(call: Call, sharing: Sharing, mode: string, key: string): string {
  return digestOf(sharing, mode, call.tool ?? '', identityOf(call, sharing), key)
}

/** The eras, and calls that run as tasks, get answers of other shapes: one cannot stand in for the other. */
function fingerprintOf(call: Call): string {
  return digestOf(argumentsOf(call), String(isTask(call)), String(call.caller.takesInputRequired))
}
