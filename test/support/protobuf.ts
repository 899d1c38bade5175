/** The value of a field: a number of any width as a bigint, other values as bytes. */
export type FieldValue = bigint | Buffer

/** A parsed Protocol Buffers message: the values of each field, by number, in order. */
export type Fields = ReadonlyMap<number, readonly FieldValue[]>

/** Reads a message. Throws on invalid bytes. https://protobuf.dev/programming-guides/encoding/ */
export function readFields(bytes: Buffer): Fields {
  const fields = new Map<number, FieldValue[]>()
  let at = 0

  function varint(): bigint {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++]
      if (byte === undefined) throw new Error('a number is cut off')
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return value
    }
  }

  function take(length: number): Buffer {
    if (at + length > bytes.length) throw new Error('a field is cut off')
    at += length
    return bytes.subarray(at - length, at)
  }

  function value(wireType: number): FieldValue {
    switch (wireType) {
      case 0:
        return varint()
      case 1:
        return take(8).readBigUInt64LE()
      case 2:
        return take(Number(varint()))
      case 5:
        return BigInt(take(4).readUInt32LE())
      default:
        throw new Error(`there is no wire type ${wireType}`)
    }
  }

  while (at < bytes.length) {
    const tag = Number(varint())
    const number = tag >> 3
    const values = fields.get(number) ?? []
    values.push(value(tag & 7))
    fields.set(number, values)
  }
  return fields
}

/** The messages in a repeated field. */
export function messagesIn(fields: Fields, number: number): Fields[] {
  return (fields.get(number) ?? []).map((value) => readFields(value as Buffer))
}

/** Returns the last value of a text field; empty if absent, as in the encoding. */
export function textIn(fields: Fields, number: number, encoding: BufferEncoding = 'utf8'): string {
  const value = fields.get(number)?.at(-1)
  return Buffer.isBuffer(value) ? value.toString(encoding) : ''
}

/** Returns the last value of a number field; 0 if absent, as in the encoding. */
export function numberIn(fields: Fields, number: number): bigint {
  const value = fields.get(number)?.at(-1)
  return typeof value === 'bigint' ? value : 0n
}

/** Returns the number with these bits. */
export function doubleOf(bits: bigint): number {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64LE(bits)
  return bytes.readDoubleLE()
}
