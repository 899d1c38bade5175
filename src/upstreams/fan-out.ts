import type { Message } from '../mesh/call.ts'
import { countCopy } from '../mesh/turns.ts'
import { during } from '../mesh/work.ts'
import { notificationText, paramsOf } from '../protocol/jsonrpc.ts'
import { LargeMessage } from '../protocol/large-message.ts'

/** Largest total of a message's copies, in UTF-16 code units: all copies are made in one turn of the event loop. */
const MOST_OF_ALL = 1024 ** 2

/** Sends a server's notification to all listeners: only the method and the `uri` if all copies exceed 1 MiB. */
export function fanOut<Receiver>(
  receivers: ReadonlySet<Receiver>,
  message: Message,
  tell: (receiver: Receiver, message: Message) => void,
): void {
  during('fan_out', () => {
    const told = isTooLong(message, receivers.size) ? inBrief(message) : message
    for (const receiver of receivers) {
      tell(receiver, told)
      countCopy()
    }
  })
}

/**
 * Whether all copies of a message are too long together. A `LargeMessage` always counts as too long, and stays
 * undecoded.
 */
function isTooLong(message: Message, copies: number): boolean {
  return copies > 1 && (LargeMessage.is(message) || message.text.length * copies > MOST_OF_ALL)
}

function inBrief({ value }: Message): Message {
  const method = value.method as string
  const { uri } = paramsOf(value)
  const params = uri === undefined ? {} : { uri }
  return { text: notificationText(method, params), value: { jsonrpc: '2.0', method, params } }
}
