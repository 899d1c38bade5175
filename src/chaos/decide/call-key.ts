import type { Call, CallRecord } from '../../mesh/call.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { metaOf } from '../../protocol/meta.ts'
import { canonical, digest, joined } from './canonical.ts'
import { Recent } from './recent.ts'

/** Where an agent says which of its tasks a call belongs to. */
export const INTENT_KEY = 'dev.breakwater/intent'

/** Most calls that are told apart by how often they came; the ones longest ago are forgotten. */
const MAX_KEYS = 50_000

/** Longest request whose arguments are compared, in characters: larger ones go by arrival. */
const MAX_TEXT = 256 * 1024

/** Which logical call this is: all its attempts are the same one. */
export interface Identity {
  readonly server: string
  readonly subject: string
  /** The same in every run in which the same logical calls are made. */
  readonly key: string
  /** Whether the order in which calls came went into the key. */
  readonly orderDependent: boolean
  readonly intent: string | undefined
}

/** Knows calls again: by intent, tool, arguments and occurrence, in whatever order they come. */
export class Identities {
  #occurrences = new Recent<number>(MAX_KEYS)
  #known = new WeakMap<CallRecord, Identity[]>()
  #arrivals = 0

  /** The identity of a call. Its first attempt counts the occurrence; the others find what that one got. */
  of(call: Call): Identity {
    const subject = call.tool ?? call.method
    const known = this.#known.get(call.record)
    for (const identity of known ?? []) {
      if (identity.server === call.server && identity.subject === subject) return identity
    }
    const made = this.#make(call, subject)
    if (known === undefined) this.#known.set(call.record, [made])
    else known.push(made)
    return made
  }

  /** Begins anew: the next call is the first of its kind. */
  clear(): void {
    this.#occurrences = new Recent(MAX_KEYS)
    this.#known = new WeakMap()
    this.#arrivals = 0
  }

  #make(call: Call, subject: string): Identity {
    const { server, tenant, message } = call
    const intent = intentOf(call)
    const whose = intent === undefined ? ['tenant', tenant] : ['intent', intent]
    const kind = call.tool === undefined ? 'method' : 'tool'
    const asked = message.text.length > MAX_TEXT ? undefined : argumentsOf(call)
    if (asked === undefined) {
      const key = joined('arrival', this.#arrivals++)
      return { server, subject, key, orderDependent: true, intent }
    }
    const base = joined(...whose, server, kind, short(subject), digest(asked))
    const occurrence = this.#occurrences.get(base) ?? 0
    this.#occurrences.set(base, occurrence + 1)
    return { server, subject, key: `${base} ${joined(occurrence)}`, orderDependent: false, intent }
  }
}

/** The task of a call, as its agent names it; undefined when it does not. */
export function intentOf({ message }: Call): string | undefined {
  const intent = metaOf(message.value, 'params', INTENT_KEY)
  return typeof intent === 'string' && intent !== '' ? short(intent) : undefined
}

/** The key that draws are made with: every attempt has draws of its own, unless they are to share a fate. */
export const drawKeyOf = ({ key }: Identity, attempt: number, sticky: boolean): string =>
  sticky ? key : `${key} a${attempt}`

/** What is asked for, without what is said about the asking. */
function argumentsOf({ tool, message }: Call): string | undefined {
  const params = paramsOf(message.value)
  if (tool !== undefined) return canonical(params.arguments ?? {})
  const { _meta, ...asked } = params
  return canonical(asked)
}

const short = (text: string) => (text.length <= 128 ? text : `${text.slice(0, 64)}…${digest(text)}`)
