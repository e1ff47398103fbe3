"""Metrics of optical modules and cables (`fabric_nic_module_`): schemas, HELP texts, and origins."""

from types import MappingProxyType

from exporter.core import vocabulary
from exporter.core.vocabulary import gauge, info
from exporter.linux.optics.module import QUANTITIES

_MONITORS = ("ETHTOOL_MSG_MODULE_EEPROM_GET: SFF-8472 A2h, SFF-8636 lower memory, CMIS lower memory and page 11h",)
_THRESHOLDS = ("ETHTOOL_MSG_MODULE_EEPROM_GET: SFF-8472 A2h, SFF-8636 page 03h, CMIS page 02h",)
_STATE = ("ETHTOOL_MSG_MODULE_EEPROM_GET: CMIS lower memory",)

_QUANTITY_TEXTS = MappingProxyType(
    {
        "temperature_celsius": "module temperature",
        "voltage_volts": "supply voltage",
        "receive_power_watts": "optical receive power of a lane",
        "transmit_power_watts": "optical transmit power of a lane",
        "bias_amperes": "laser bias current of a lane",
    }
)

MODULE = vocabulary.schema(
    "fabric_nic_",
    ("device",),
    (),
    {
        "module_info": info(
            "Optical module or cable in the port: form factor (SFF-8024 identifier), vendor name, part number, serial"
            " number and revision.",
            "kind",
            "vendor",
            "part",
            "serial",
            "revision",
        ),
        "module_state_info": info(
            "Module state (CMIS only): low_power, powering_up, ready, powering_down, fault.", "state"
        ),
        "module_fault": gauge("Whether the module state is fault (1) or not (0) (CMIS only)."),
        "module_temperature_celsius": gauge("Module temperature."),
        "module_voltage_volts": gauge("Supply voltage of the module, nominally 3.3."),
    },
    origins={
        "module_info": ["ETHTOOL_MSG_MODULE_EEPROM_GET: SFF-8472 A0h, SFF-8636 and CMIS page 00h"],
        "module_state_info": _STATE,
        "module_fault": _STATE,
        "module_temperature_celsius": _MONITORS,
        "module_voltage_volts": _MONITORS,
    },
)

LANE = vocabulary.schema(
    "fabric_nic_",
    ("device", "lane"),
    (),
    {
        "module_lane_receive_power_watts": gauge("Optical receive power of the lane; 0 if the lane receives no light."),
        "module_lane_transmit_power_watts": gauge("Optical transmit power of the lane; 0 if the lane emits no light."),
        "module_lane_bias_amperes": gauge("Laser bias current of the lane; 0 while the laser is off."),
    },
    origins={
        "module_lane_receive_power_watts": _MONITORS,
        "module_lane_transmit_power_watts": _MONITORS,
        "module_lane_bias_amperes": _MONITORS,
    },
)

THRESHOLD = vocabulary.schema(
    "fabric_nic_",
    ("device", "level"),
    (),
    {
        f"module_threshold_{quantity.name}": gauge(
            f"High or low alarm or warning threshold of the module for the {_QUANTITY_TEXTS[quantity.name]}."
        )
        for quantity in QUANTITIES
    },
    origins={f"module_threshold_{quantity.name}": _THRESHOLDS for quantity in QUANTITIES},
)
