import { z } from 'zod'
import { operator } from './operator.ts'
import { pointer } from './pointer.ts'

const numeric = /^-?\d{1,15}(\.\d+)?$/

export const typeChange = operator({
  about: 'Turns a number into a string or back, and true into "true".',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({ op: z.literal('type'), path: pointer() }),
  fits: ({ value }) =>
    typeof value === 'number' ||
    typeof value === 'boolean' ||
    (typeof value === 'string' && numeric.test(value)),
  edit: ({ value }) => ({ value: typeof value === 'string' ? Number(value) : String(value) }),
})

/** Returns the word in capitals or, for a word in capitals, in small letters. */
const otherWord = (word: string): string => {
  const upper = word.toUpperCase()
  return upper === word ? word.toLowerCase() : upper
}

export const enumValue = operator({
  about: 'Replaces a word that the schema lists by an unlisted word.',
  detectable: 'schema_detectable',
  on: 'json',
  schema: z.strictObject({
    op: z.literal('enum'),
    path: pointer(),
    to: z
      .string()
      .optional()
      .describe('The new word. Default: the old word in capitals, or in small letters.'),
  }),
  fits: ({ value }, { to }) =>
    typeof value === 'string' &&
    (to !== undefined ? value !== to : /^[a-z][\w-]{0,31}$/i.test(value) && /[a-z]/i.test(value)),
  suits: ({ listed }) => listed !== false,
  edit: ({ value }, { to }) => ({ value: to ?? otherWord(value as string) }),
})

export const unit = operator({
  about: 'Scales a number, as if in another unit; its name stays.',
  detectable: 'semantic',
  on: 'json',
  schema: z.strictObject({
    op: z.literal('unit'),
    path: pointer(),
    factor: z
      .number()
      .refine((factor) => factor !== 1, 'a factor of 1 changes nothing')
      .default(1000)
      .describe('The factor: 1000 turns seconds into milliseconds.'),
  }),
  fits: ({ value }, { factor }) =>
    typeof value === 'number' && value !== 0 && Number.isFinite(value * factor),
  edit: ({ value }, { factor }) => ({ value: (value as number) * factor }),
})

export const precision = operator({
  about: 'Rounds a number.',
  detectable: 'semantic',
  on: 'json',
  schema: z.strictObject({
    op: z.literal('precision'),
    path: pointer(),
    digits: z.int().min(0).max(15).default(0).describe('Decimal places kept.'),
  }),
  fits: ({ value }, { digits }) => typeof value === 'number' && rounded(value, digits) !== value,
  edit: ({ value }, { digits }) => ({ value: rounded(value as number, digits) }),
})

const rounded = (value: number, digits: number): number => Number(value.toFixed(digits))
