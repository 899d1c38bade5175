import type { Partial, Verdict } from '../../mesh/call.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import type { Mismatch } from '../state/schemas/mismatch.ts'
import { cutText, spoiltCopy } from './copy.ts'
import { jsonEnd } from './json-end.ts'
import { missingItems } from './lists.ts'
import type { ToolMemory } from './memory.ts'
import { TEXT } from './shape-node.ts'
import type { Drift } from './shape.ts'
import { beginsLikeJson, firstText, isSurelyJson } from './text.ts'

/** How good a reply was, and what is wrong with it. */
export interface Judgement {
  readonly verdict: Verdict
  readonly partial?: Partial
  readonly drift?: Drift
  /** In words; for `schema_invalid` and `json_invalid`. */
  readonly breach?: string
}

/** What is looked for besides the schema. */
export interface Looks {
  /** Text that claims to be JSON, and is none. */
  readonly json: boolean
  readonly partials: boolean
  readonly shapes: boolean
}

const jsonInvalid: Judgement = { verdict: 'json_invalid', breach: 'the reply claims to be JSON and is none' }
const cut: Judgement = { verdict: 'partial_silent', partial: cutText }

/** What the first mismatch with the `outputSchema` means. */
export function breachOf({ path, expected, keyword, limit }: Mismatch, structured: unknown): Judgement {
  const breach = `the reply breaks the tool’s outputSchema at ${path}: ${expected}`
  if (keyword !== 'minItems') return { verdict: 'schema_invalid', breach }
  const length = lengthAt(structured, path)
  const partial: Partial = {
    source: 'detected',
    reason: 'fewer items than the outputSchema demands',
    missing: [path],
    ...(length === undefined || !limit ? {} : { completeness: length / limit }),
    notice: false,
  }
  return { verdict: 'schema_invalid', breach, partial }
}

/** What a reply shows without a schema; undefined when nothing is remarkable. */
export function look(
  { content, structuredContent }: Readonly<Record<string, unknown>>,
  args: Readonly<Record<string, unknown>>,
  memory: ToolMemory | undefined,
  looks: Looks,
): Judgement | undefined {
  const text = firstText(content)
  const json = text !== undefined && beginsLikeJson(text)
  let value = structuredContent
  if (value !== undefined) {
    const spoilt = json && looks.partials ? spoiltCopy(text, value, memory?.copy) : undefined
    if (spoilt !== undefined) return { verdict: 'partial_silent', partial: spoilt }
  } else if (json) {
    value = parseJson(text)
    if (value === undefined) {
      const judgement = noJson(text, memory, looks)
      if (judgement !== undefined) return judgement
    }
  }
  if (value === undefined) {
    if (text === undefined) return undefined
    memory?.json.break()
    return drifted(TEXT, memory, looks)
  }
  memory?.json.keep()
  const partial = looks.partials && isObject(value) ? missingItems(value, args, memory) : undefined
  return partial === undefined ? drifted(value, memory, looks) : { verdict: 'partial_silent', partial }
}

/** What to make of a text that begins like JSON and does not parse; undefined: it is text after all. */
function noJson(text: string, memory: ToolMemory | undefined, looks: Looks): Judgement | undefined {
  const always = memory?.json.strong === true
  if (!always && !isSurelyJson(text)) return undefined
  const end = jsonEnd(text)
  if (end === 'more' && !always) return undefined
  if (end === 'cut' ? looks.partials : looks.json) {
    memory?.json.break()
    return end === 'cut' ? cut : jsonInvalid
  }
  return undefined
}

function drifted(value: unknown, memory: ToolMemory | undefined, { shapes }: Looks): Judgement | undefined {
  const drift = shapes ? memory?.shape.observe(value) : undefined
  return drift === undefined ? undefined : { verdict: 'drift', drift }
}

function lengthAt(value: unknown, path: string): number | undefined {
  let at = value
  for (const step of path.split('/').slice(1)) {
    if (step === '') continue
    const key = step.replaceAll('~1', '/').replaceAll('~0', '~')
    at = typeof at === 'object' && at !== null ? (at as Readonly<Record<string, unknown>>)[key] : undefined
  }
  return Array.isArray(at) ? at.length : undefined
}
