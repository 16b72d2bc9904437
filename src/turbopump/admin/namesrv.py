"""Commands for name servers: key-value tables, configuration, and the write permission of brokers."""

from turbopump.admin.broker import config_lines
from turbopump.admin.command import AdminCommand, Call, CommandFailed
from turbopump.admin.failures import line_of
from turbopump.admin.options import required, text
from turbopump.client.admin import ServerUnreachable
from turbopump.protocol.errors import Refused

NAMESPACE = required("s", "namespace", "set the namespace", text)
KEY = required("k", "key", "set the key name", text)
VALUE = required("v", "value", "set the key value", text)
BROKER = required("b", "brokerName", "broker name", text)
CONFIG_KEY = required("k", "key", "config key", text)
CONFIG_VALUE = required("v", "value", "config value", text)


async def update_kv_config(call: Call) -> None:
    namespace, key, value = call.given[NAMESPACE], call.given[KEY], call.given[VALUE]
    await call.admin.name_servers.put_value(namespace, key, value)
    document = {"namespace": namespace, "key": key, "value": value}
    call.out.show(document, ["create or update kv config to namespace success."])


async def delete_kv_config(call: Call) -> None:
    namespace, key = call.given[NAMESPACE], call.given[KEY]
    await call.admin.name_servers.delete_value(namespace, key)
    call.out.show({"namespace": namespace, "key": key}, ["delete kv config from namespace success."])


async def wipe_write_perm(call: Call) -> None:
    await change_permission(call, "wipe")


async def add_write_perm(call: Call) -> None:
    await change_permission(call, "add")


async def change_permission(call: Call, verb: str) -> None:
    """Wipes or adds (`verb`) a broker's write permission at all name servers; CommandFailed if one failed."""
    broker, settings = call.given[BROKER], call.admin.name_servers
    change = settings.wipe_write_permission if verb == "wipe" else settings.add_write_permission
    done = []
    for address in settings.addresses:
        said = f"{verb} write perm of broker[{broker}] in name server[{address}]"
        try:
            topics = await change(address, broker)
        except (Refused, ServerUnreachable) as error:
            call.out.line(f"{said} Failed")
            call.out.warn(line_of(error))
            continue
        call.out.line(f"{said} OK, {topics}")
        done.append({"nameServer": address, "topicCount": topics})
    call.out.show({"brokerName": broker, "nameServers": done}, [])
    if len(done) < len(settings.addresses):
        raise CommandFailed("not every name server was changed")


async def get_namesrv_config(call: Call) -> None:
    configs = await call.admin.name_servers.configs()
    lines = [
        line
        for address, config in configs.items()
        for line in (f"============{address}============", *config_lines(config))
    ]
    documents = [{"nameServer": address, "config": config} for address, config in configs.items()]
    call.out.show({"nameServers": documents}, lines)


async def update_namesrv_config(call: Call) -> None:
    key, value = call.given[CONFIG_KEY], call.given[CONFIG_VALUE]
    await call.admin.name_servers.update_config({key: value})
    servers = list(call.admin.name_servers.addresses)
    lines = [f"update name server config success![{', '.join(servers)}]", f"{key} : {value}"]
    call.out.show({"nameServers": servers, "changed": {key: value}}, lines)


COMMANDS = (
    AdminCommand("updateKvConfig", "Create or update KV config.", update_kv_config, (NAMESPACE, KEY, VALUE)),
    AdminCommand("deleteKvConfig", "Delete KV config.", delete_kv_config, (NAMESPACE, KEY)),
    AdminCommand(
        "wipeWritePerm",
        "Wipe write perm of broker in all name server you defined in the -n param.",
        wipe_write_perm,
        (BROKER,),
    ),
    AdminCommand(
        "addWritePerm",
        "Add write perm of broker in all name server you defined in the -n param.",
        add_write_perm,
        (BROKER,),
    ),
    AdminCommand("getNamesrvConfig", "Get configs of name server.", get_namesrv_config),
    AdminCommand(
        "updateNamesrvConfig",
        "Update configs of name server.",
        update_namesrv_config,
        (CONFIG_KEY, CONFIG_VALUE),
    ),
)
