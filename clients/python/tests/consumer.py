"""A process that handles messages and can be killed: python consumer.py URL QOS ACKNOWLEDGE. It prints each message when it was handled."""

import asyncio
import sys
from typing import Any

import thicket


async def main(url: str, qos: str, acknowledge: Any) -> None:
    client = thicket.Client(url, client_id="consumer", resume=True, subscribe={"work": int(qos)}, acknowledge=acknowledge)
    async with client:
        print("ready", flush=True)
        async for message in client:
            # What is handled takes a moment.
            await asyncio.sleep(0.002)
            print(message.text, flush=True)


asyncio.run(main(*sys.argv[1:]))
