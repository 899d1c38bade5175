import { z } from 'zod'
import { operator } from './operator.ts'
import { pointer } from './pointer.ts'

export const truncateText = operator({
  about: 'Keeps only the beginning or the end of a text.',
  detectable: 'semantic',
  on: 'json_or_text',
  schema: z.strictObject({
    op: z.literal('truncate_text'),
    path: pointer(),
    bytes: z.int().min(0).optional().describe('Bytes of UTF-8 kept. Default: half.'),
    keep: z.enum(['head', 'tail']).default('head').describe('The end to keep.'),
  }),
  fits: ({ value }, { bytes }) => typeof value === 'string' && Buffer.byteLength(value) > (bytes ?? 1),
  edit({ value }, { bytes, keep }) {
    const text = Buffer.from(value as string)
    const length = bytes ?? Math.ceil(text.length / 2)
    return { value: keep === 'head' ? head(text, length) : tail(text, length) }
  },
})

/** Returns the first bytes of a text, without a last character that the limit would cut. */
function head(text: Buffer, bytes: number): string {
  let end = bytes
  while (end > 0 && isInside(text, end)) end--
  return text.toString('utf8', 0, end)
}

function tail(text: Buffer, bytes: number): string {
  let start = text.length - bytes
  while (start < text.length && isInside(text, start)) start++
  return text.toString('utf8', start)
}

/** Returns true when the byte continues an earlier character. */
const isInside = (text: Buffer, at: number): boolean => ((text[at] ?? 0) & 0xc0) === 0x80

export const cutJson = operator({
  about: 'Cuts off the text of a JSON value in the middle.',
  detectable: 'schema_detectable',
  on: 'json_text',
  schema: z.strictObject({
    op: z.literal('cut_json'),
    at: z.number().min(0).lt(1).default(0.6).describe('Share of the characters kept.'),
  }),
  fits: ({ value }) => typeof value === 'string' && /^\s*[[{]/.test(value),
  edit({ value }, { at }) {
    const text = (value as string).trimEnd()
    return { value: text.slice(0, Math.floor(text.length * at)) }
  },
})

export const dropBlocks = operator({
  about: 'Drops the last content blocks.',
  detectable: 'semantic',
  on: 'blocks',
  schema: z.strictObject({
    op: z.literal('drop_blocks'),
    n: z.int().min(1).default(1).describe('Number of dropped blocks.'),
  }),
  fits: ({ value }) => Array.isArray(value) && value.length > 0,
  edit: ({ value }, { n }) => ({ value: (value as unknown[]).slice(0, -n) }),
})
