import { z } from 'zod'
import type { LeafIssue } from './zod-issues.ts'

const typeNames: Readonly<Record<string, string>> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'a map',
  record: 'a map',
  array: 'a list',
}

/** What a schema allows where `issue` was found, such as `a whole number from 1 to 64`. */
export function expected(issue: LeafIssue, schemas: readonly z.core.$ZodType[]): string | undefined {
  switch (issue.code) {
    case 'invalid_type':
      return numberRange(issue.expected, schemas) ?? typeNames[issue.expected] ?? issue.expected
    case 'invalid_value':
      return oneOf(issue.values.map((value) => JSON.stringify(value)))
    case 'too_small':
    case 'too_big':
      return numberRange(issue.origin, schemas) ?? lengthBound(issue)
    case 'none_of':
      return oneOf(
        [...new Set(issue.alternatives.map((leaf) => expected(leaf, schemas) ?? ''))].filter(Boolean),
      )
    case 'invalid_format':
      return `text in the form ${issue.format}`
    default:
      return undefined
  }
}

function numberRange(type: string, schemas: readonly z.core.$ZodType[]): string | undefined {
  if (type !== 'number' && type !== 'int') return undefined
  const schema = schemas.find((candidate) => candidate instanceof z.ZodNumber)
  if (schema === undefined) return undefined
  const least = schema.minValue ?? -Infinity
  const most = schema.maxValue ?? Infinity
  const name = schema.format?.includes('int') ? 'a whole number' : 'a number'
  if (least <= Number.MIN_SAFE_INTEGER)
    return most >= Number.MAX_SAFE_INTEGER ? name : `${name} up to ${most}`
  return most >= Number.MAX_SAFE_INTEGER ? `${name} from ${least}` : `${name} from ${least} to ${most}`
}

function lengthBound(issue: z.core.$ZodIssueTooSmall | z.core.$ZodIssueTooBig): string {
  const unit = issue.origin === 'string' ? 'character' : 'entry'
  const bound = issue.code === 'too_small' ? issue.minimum : issue.maximum
  const units = Number(bound) === 1 ? unit : unit === 'entry' ? 'entries' : 'characters'
  return `at ${issue.code === 'too_small' ? 'least' : 'most'} ${bound} ${units}`
}

/** `a`, `a or b`, `a, b or c`. */
function oneOf(choices: readonly string[]): string {
  const last = choices.at(-1) ?? ''
  return choices.length < 2 ? last : `${choices.slice(0, -1).join(', ')} or ${last}`
}
