import type { WireReply } from './wire.ts'

/** A value that differs from run to run, and its placeholder in the record. */
interface Rule {
  /** Group 1 is replaced, or the whole match without a group. */
  readonly pattern: RegExp
  readonly name: string
  /** Whether different values stay distinct, numbered by first appearance. */
  readonly numbered: boolean
  readonly why: string
}

/** All replacements, in order. Each rule is as narrow as possible: everything else has to stay the same. */
export const rules: readonly Rule[] = [
  {
    pattern: /^Date: (.+)$/im,
    name: 'date',
    numbered: false,
    why: 'Node writes the time of the reply',
  },
  {
    pattern: /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g,
    name: 'time',
    numbered: false,
    why: 'the control plane tells since when something is so',
  },
  {
    pattern: /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g,
    name: 'uuid',
    numbered: true,
    why: 'sessions and request states of the gateway and of its servers have random ids',
  },
  {
    pattern: /^etag: ("[0-9a-z]+-\d+")$/im,
    name: 'revision',
    numbered: false,
    why: 'the state of faults is numbered within a process, which is told from others by when it started',
  },
  {
    pattern: /"requestState":"(v1\.[\w-]+\.[\w-]+)"/g,
    name: 'request state',
    numbered: false,
    why: 'a fixture seals its states with a random key; equal ones of one second are the same text',
  },
  {
    pattern: /(?<="text":")read by (\d+)(?=")/g,
    name: 'pid',
    numbered: false,
    why: 'a fixture tells which process it is',
  },
  {
    pattern: /"(?:since|at|from|to)":(1[789]\d{11}(?:\.\d+)?)\b/g,
    name: 'instant',
    numbered: false,
    why: 'breakers, faults and their journal tell times in milliseconds since 1970',
  },
  {
    pattern: /"(?:remainingMs|sinceMs|idleMs|tookMs)":(\d+(?:\.\d+)?)\b/g,
    name: 'ms',
    numbered: false,
    why: 'how long a fault is still armed, or was when it decided, and how long a session has done nothing',
  },
  {
    pattern: /(?:"retryAfterMs":|"nextProbeInMs":)(35\d{5}|3600000)\b/g,
    name: 'an hour in ms, or a bit less',
    numbered: false,
    why: 'all that is refused until later is refused for an hour, from a moment that lies a little back',
  },
  {
    pattern: /(?:try again|next probe) in (1h|59m|35\d\ds)\b/g,
    name: 'an hour, rounded up',
    numbered: false,
    why: 'the same, in words',
  },
  {
    pattern: /"reason":"bulkhead_full"[^}]*"retryAfterMs":(\d+)/g,
    name: 'the time of a call in ms',
    numbered: false,
    why: 'a full bulkhead refuses for as long as the calls before took',
  },
  {
    pattern: /bulkhead full [^"]*try again in (\d+ms)/g,
    name: 'the time of a call',
    numbered: false,
    why: 'the same, in words',
  },
  {
    pattern: /"before":"([0-9a-f]{16})"/g,
    name: 'digest',
    numbered: false,
    why: 'the journal of faults tells replies by their digests, and that of a fixture says which process it is',
  },
  {
    pattern: /"caller":"([0-9a-f]{8})"/g,
    name: 'caller',
    numbered: true,
    why: 'the journal of faults tells sessions from each other by the begin of a random id',
  },
  {
    pattern: /\b[0-9a-f]{8}(?=…)/g,
    name: 'begin of a uuid',
    numbered: true,
    why: 'operators are shown no more of a session’s id',
  },
]

/** Replaces values that differ from run to run. Keeps the numbers of one run. */
export class Placeholders {
  readonly #known: readonly (readonly [text: string, name: string])[]
  readonly #numbers = new Map<string, Map<string, number>>()

  /** `known`: exact texts that differ in each run, such as addresses with free ports, by placeholder name. */
  constructor(known: Readonly<Record<string, string>>) {
    this.#known = Object.entries(known).map(([name, text]) => [text, `<${name}>`])
  }

  in(text: string): string {
    let stable = text
    for (const [known, name] of this.#known) stable = stable.replaceAll(known, name)
    for (const rule of rules) {
      stable = stable.replace(rule.pattern, (match: string, ...groups: unknown[]) => {
        const value = typeof groups[0] === 'string' ? groups[0] : match
        return match.replace(value, () => this.#placeholder(rule, value))
      })
    }
    return stable
  }

  /**
   * Returns the reply's headers, a line each. The content length gets a placeholder if the body is recorded changed.
   */
  headersOf({ headers, body }: WireReply, recorded: string): string[] {
    const isChanged = recorded !== body
    const length = String(Buffer.byteLength(body))
    return headers.map(([name, value]) => {
      const isLength = name.toLowerCase() === 'content-length' && value === length
      return this.in(`${name}: ${isChanged && isLength ? '<that of the body>' : value}`)
    })
  }

  #placeholder({ name, numbered }: Rule, value: string): string {
    if (!numbered) return `<${name}>`
    let known = this.#numbers.get(name)
    if (known === undefined) this.#numbers.set(name, (known = new Map<string, number>()))
    let number = known.get(value)
    if (number === undefined) known.set(value, (number = known.size + 1))
    return `<${name} ${number}>`
  }
}
